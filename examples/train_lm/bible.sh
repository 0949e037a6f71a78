#!/bin/bash
# bible.sh FOLDER: writes the King James Bible, without the numbers of the verses, to FOLDER/bible.txt unless it is there.
set -euo pipefail
text=$1/bible.txt
[[ ! -s $text ]] || exit 0
mkdir -p "$1"
bible -f gen1:1-rev22:21 | sed 's/^[^ ]* //' >"$text.new"
mv "$text.new" "$text"
