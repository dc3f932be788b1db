"""Market tasks: settings and builders."""
