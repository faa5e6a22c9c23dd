#!/bin/sh
# Turns man/*.1.md into man/*.1 with pandoc. Both are committed: installing pasta needs no pandoc.
#   scripts/manpages.sh [DIRECTORY]    writes to DIRECTORY (default: man)
set -eu
cd "$(dirname "$0")/.."
out=${1:-man}
if ! command -v pandoc > /dev/null; then
  echo "manpages.sh: no pandoc, the pages stay as they are; install it (apt install pandoc)" >&2
  exit 1
fi
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' pasta/__init__.py)
made=$(mktemp)
trap 'rm -f "$made"' EXIT
for page in man/*.1.md; do
  name=$(basename "$page" .1.md)
  pandoc --standalone --from markdown-smart --to man --output "$made" \
    --variable title="$(printf %s "$name" | tr a-z A-Z)" --variable section=1 \
    --variable footer="pasta $version" --variable header="pasta manual" "$page"
  # The comment that names pandoc's version would change with every machine.
  sed '/^\.\\"/d' "$made" > "$out/$name.1"
done
