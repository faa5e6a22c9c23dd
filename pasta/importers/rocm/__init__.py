"""AMD's formats: rocprofv3's JSON and CSV, rocpd, and rocmProfileData."""
