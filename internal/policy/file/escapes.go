package file

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// unescaped writes pairs of surrogates as the characters that they stand for, if the text is JSON: of all that JSON has
// they alone are no YAML, and many encoders write every character beyond U+FFFF so. One without the other half is left, and
// refused as no YAML.
func unescaped(text []byte) []byte {
	if !bytes.Contains(text, []byte(`\u`)) || !json.Valid(text) {
		return text
	}
	var out []byte
	from := 0
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if r := utf16.DecodeRune(surrogate(text[i:]), surrogate(text[min(i+6, len(text)):])); r != utf8.RuneError {
			out = utf8.AppendRune(append(out, text[from:i]...), r)
			from = i + 12
			i = from - 1
		} else {
			i++ // what is escaped begins nothing
		}
	}
	return append(out, text[from:]...)
}

// surrogate reads \ud83d and its like; 0: something else is there.
func surrogate(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}
