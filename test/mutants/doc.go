// Package mutants breaks the product on purpose, one small change at a time, and
// demands that a named test notices. A promise whose test can't fail isn't tested.
//
// A mutant is data: testdata/*.txt, one file per package that it breaks. The lines
// marked - must occur exactly once in the file; those marked + take their place:
//
//	mutant: an event exactly W old still counts
//	file: internal/limit/rolling.go
//	test: TestRollingThreePerMinute
//	-	after := now - s.Window
//	+	after := now - s.Window - 1
//
// The test lives in the package of the file unless a line "package: ./internal/fsm"
// says otherwise. Lines that begin with # are remarks.
//
// It is slow, as each mutant is compiled; it runs with MUTANTS=1 in the environment
// (`make mutants`). The source tree is never touched.
package mutants
