#!/usr/bin/env bash
# Fails unless every program and module named is hardened as Debian's own packages are, and says what
# is missing. `hardening-check` of devscripts looks for the same and more.
#
# usage: tools/check_hardening.sh FILE…
set -euo pipefail
status=0
for file in "$@"; do
  missing=()
  # has WHAT PATTERN: in everything that readelf tells of the file.
  told=$(LC_ALL=C readelf -hldW --dyn-syms "$file")
  has() { grep -qE -- "$2" <<<"$told" || missing+=("$1"); }
  has "position-independent code" 'Type: +DYN'
  has "read-only relocations" '^ *GNU_RELRO '
  has "immediate binding" '\bBIND_NOW\b|\(FLAGS_1\).*\bNOW\b'
  has "a stack that cannot be executed" '^ *GNU_STACK .* RW '
  has "stack protector" ' UND __stack_chk_(fail|guard)\b'
  # A small module may call none whose buffer the compiler knows.
  [[ $told != *" INTERP "* ]] || has "checked functions of the C library" ' UND __[a-z]+_chk\b'
  for what in "${missing[@]}"; do
    echo "$file: no $what"
    status=1
  done
done
exit "$status"
