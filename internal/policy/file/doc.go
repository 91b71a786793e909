// Package file reads policy sets from YAML, of which JSON is a part, and says what is wrong with them line
// by line.
//
// Invariants:
//
//   - A set that is returned is valid and normalized, and its canonical form reads back to the same set.
//   - Nothing is ignored: unknown fields, repeated ones, values of another type, fields without a value,
//     anchors, aliases, tags and second documents are errors. A limit that was meant and not read would be
//     no limit.
//   - Everything that is wrong is reported at once, up to a thousand problems, sorted by line, each with the policy
//     that it is about. What was reported about a value isn't reported again as something that validation finds
//     missing.
//   - No input panics or costs more than a bounded multiple of its size: at most [MaxSize] bytes are read, of YAML at
//     most [MaxYAML], whose tree is what memory goes into, and no alias is expanded.
//
// The command line tool and nodes call it. It alone knows YAML of policies; programs are configured by other files.
package file
