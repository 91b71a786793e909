// Package fence reads the fenced blocks of the documentation, for tests that run what it shows: test/docs, test/e2e.
package fence
