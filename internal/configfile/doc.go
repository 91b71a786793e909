// Package configfile reads the YAML file that a program is configured by, and says what is wrong with it line by line.
//
// Invariants:
//
//   - Nothing is ignored: unknown fields, repeated ones, values of another type, fields without a value, anchors, aliases,
//     tags and second documents are errors. A setting that was meant and not read would be another one.
//   - Everything that is wrong is told at once, sorted by line; what was refused when it was read isn't told again as
//     something that is missing.
//   - No input panics, and no alias is expanded. At most [MaxSize] bytes are read.
//
// Commands call it, each with its own fields, defaults and checks; it knows none of them.
package configfile
