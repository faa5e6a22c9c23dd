"""What several tools compute: intervals, operator trees, lifetimes, launches, steps. Nothing here knows a tool."""
