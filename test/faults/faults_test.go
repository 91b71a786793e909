package faults_test

import "slices"

// faults are all there are.
func faults() []fault {
	return slices.Concat(ofProcesses(), ofLinks(), ofSpaces(), ofDisks(), ofClocks())
}
