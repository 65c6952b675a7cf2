"""`python -m holdfast_systems.passport`, the same as `holdfast-passport`."""

from holdfast_systems.passport.command import main

main(prog_name="holdfast-passport")
