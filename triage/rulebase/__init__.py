"""The rules: one YAML file each read into values, matched against a crash, proved by their own samples."""
