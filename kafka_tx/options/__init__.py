"""What users write as options and settings becomes values here, from one table each."""
