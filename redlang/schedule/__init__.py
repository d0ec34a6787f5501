"""From a fused program to loops: nests, plans, and the model that chooses among them."""
