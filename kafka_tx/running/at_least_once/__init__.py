"""At-least-once topologies at run time: records are completed one by one."""
