"""One file for each system: how a process joins it, sends and receives. Imported only by the process that uses it."""
