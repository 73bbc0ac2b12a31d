"""One file or folder per neighbour: the only importers of its client."""
