package e2e_test

import (
	"os"
	"regexp"
	"testing"
	"time"
)

// namespace is the release's; what it is called, README's commands say.
const namespace = "quorate"

// lastStep looks at two commits, which not every clone has.
const lastStep = "UpgradedFromTheCommitBefore"

// run is what steps work with.
type run struct {
	*kubernetes
	load *load
}

// step is one thing that has to work.
type step struct {
	name   string
	always bool // what the others build on
	do     func(*testing.T, *run)
}

func steps() []step {
	return []step{
		{"Install", true, install},
		{"ThreeAllowsAndADenyThroughASidecar", true, threeAllowsAndADeny},
		{"LoadBegins", true, beginLoad},
		{"LeaderProcessKilled", false, leaderProcessKilled},
		{"LeaderPodKilled", false, leaderPodKilled},
		{"MachineCutOff", false, machineCutOff},
		{"PowerOff", false, powerOff},
		{"AllPodsAtOnce", false, allPodsAtOnce},
		{"Drained", false, drained},
		{"Rolled", false, rolled},
		{"PoliciesEdited", true, policiesEdited},
		{"PolicyInConflict", false, policyInConflict},
		{"PolicyBroken", false, policyBroken},
		{"PolicyDeleted", false, policyDeleted},
		{"DefinitionDeleted", false, definitionDeleted},
		{"CertificatesRenewed", false, certificatesRenewed},
		{"Scaled", false, scaled},
		{"UninstalledAndReinstalled", false, reinstalled},
		{"LoadEndsAndTheCheckerFindsNoLimitExceeded", true, judge},
		{"ImageBuiltElsewhereIsTheSame", false, imageBuiltElsewhere},
		{lastStep, false, upgraded},
	}
}

// TestQuorateOnKubernetes is all of it.
func TestQuorateOnKubernetes(t *testing.T) {
	if os.Getenv("E2E") == "" {
		t.Skip("needs root and a Kubernetes: make e2e")
	}
	wanted, began := regexp.MustCompile(os.Getenv("STEPS")), time.Now()
	var todo []step
	for _, s := range steps() {
		if s.always || wanted.MatchString(s.name) {
			todo = append(todo, s)
		}
	}
	if todo[len(todo)-1].name == lastStep && os.Getenv("PREVIOUS") != noPrevious {
		previous(t) // what is missing is missing now already
	}
	r := &run{kubernetes: startKubernetes(t)}
	r.load = &load{kubernetes: r.kubernetes}
	for _, s := range todo {
		stepBegan := time.Now()
		ok := t.Run(s.name, func(t *testing.T) { s.do(t, r) })
		if !ok {
			r.tell(t)
			t.FailNow() // the steps that follow build on this one
		}
		t.Logf("%s: %.0f s of %.0f", s.name, time.Since(stepBegan).Seconds(), time.Since(began).Seconds())
	}
}
