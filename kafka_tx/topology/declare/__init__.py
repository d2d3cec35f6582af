"""What users declare: spouts, bolts, groupings; and the graph they become."""
