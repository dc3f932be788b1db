"""Power flow of substations with two busbars, each element on one of them or out, another assignment in every lane."""
