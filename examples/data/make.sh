#!/usr/bin/env bash
# Writes unicode-characters.csv beside this script from the Unicode Character Database.
#
# Usage: make.sh [UnicodeData.txt]
# Without an argument it reads the copy of Debian's package unicode-data.
set -euo pipefail

source_file=${1:-/usr/share/unicode/UnicodeData.txt}
target=$(dirname "$0")/unicode-characters.csv

if [ ! -r "$source_file" ]; then
    echo "make.sh: cannot read $source_file; run: apt-get install unicode-data" >&2
    exit 1
fi

# One record per line, fields kept byte for byte; a field with a comma or a quotation mark is
# quoted as RFC 4180 says. A record without 15 fields stops the conversion.
LC_ALL=C awk -F';' '
    BEGIN {
        print "codepoint,name,general_category,canonical_combining_class,bidi_class," \
            "decomposition,decimal_value,digit_value,numeric_value,bidi_mirrored," \
            "unicode_1_name,iso_comment,simple_uppercase,simple_lowercase,simple_titlecase"
    }
    NF != 15 {
        printf "make.sh: line %d has %d fields, expected 15\n", NR, NF > "/dev/stderr"
        exit 1
    }
    {
        line = ""
        for (i = 1; i <= NF; i++) {
            field = $i
            if (field ~ /[",]/) {
                gsub(/"/, "\"\"", field)
                field = "\"" field "\""
            }
            line = line (i > 1 ? "," : "") field
        }
        print line
    }
' "$source_file" > "$target.tmp"
mv "$target.tmp" "$target"
