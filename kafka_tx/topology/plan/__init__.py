"""The physical plan of a graph: phases, stages, waves."""
