"""Who runs tasks: this process, or supervised processes on this machine."""
