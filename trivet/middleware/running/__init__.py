"""From flags to a running proxy: config, processes, sockets, signals."""
