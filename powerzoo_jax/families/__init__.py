"""Families of tasks: each folder holds the environment, the tasks, the plans and the records of one."""
