"""The code behind `import powerzoo`: one module a part of the PowerZoo Python API contract."""
