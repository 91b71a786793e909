package crd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/api/policy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestTheAPIServerTakesTheCRD, without a word of warning.
func TestTheAPIServerTakesTheCRD(t *testing.T) {
	server(t)
	if len(api.crd.warnings) > 0 {
		t.Errorf("the API server warns: %v", api.crd.warnings)
	}
	var status struct {
		Conditions    []metav1.Condition
		AcceptedNames struct{ ShortNames, Categories []string }
	}
	o := ask("GET", crds+"/"+crdName, "", nil).object(t)
	if err := json.Unmarshal(o.Status, &status); err != nil {
		t.Fatal(err)
	}
	got := map[string]metav1.ConditionStatus{}
	for _, c := range status.Conditions {
		got[c.Type] = c.Status
	}
	if want := map[string]metav1.ConditionStatus{"NamesAccepted": "True", "Established": "True"}; !reflect.DeepEqual(got, want) {
		t.Errorf("conditions are %v, want %v", got, want)
	}
	if names := status.AcceptedNames; !slices.Equal(names.ShortNames, []string{"rlp"}) || !slices.Equal(names.Categories, []string{"quorate"}) {
		t.Errorf("names are %v", names)
	}
}

// overridden is a spec with so many limits, overrides, and amounts in each.
func overridden(limits, overrides, amounts int) string {
	var ls, os, as []string
	for i := range limits {
		ls = append(ls, fmt.Sprintf(`{"name":"limit-%02d","tokenBucket":{"capacity":3,"refill":1,"period":"60s"}}`, i))
	}
	for i := range amounts {
		as = append(as, fmt.Sprintf(`"limit-%02d":{"capacity":5,"refill":2,"period":"1h30m"}`, i))
	}
	for i := range overrides {
		os = append(os, fmt.Sprintf(`{"when":{"user":"u%d"},"amounts":{%s}}`, i, strings.Join(as, ",")))
	}
	return `{"key":["user","tenant"],"limits":[` + strings.Join(ls, ",") + `],"overrides":[` + strings.Join(os, ",") + `]}`
}

// TestAThousandOverrides are stored, one more is refused. What the rules cost stays within what the API server allows them even
// where each override names as many limits as there can be.
func TestAThousandOverrides(t *testing.T) {
	server(t)
	if got := create(t, "thousand", overridden(4, 1000, 4)); strings.Count(string(got.Spec), `"when"`) != 1000 {
		t.Error("the API server has made something else of it")
	}
	patch := []byte(`{"spec":{"mode":"Enforce"}}`) // on an update, both revisions are looked at
	if got := ask("PATCH", policies+"/thousand", strict, patch, mergePatch); got.String() != "" {
		t.Error(got)
	}
	if got := tryCreate(overridden(16, 1000, 16)); got.String() != "" {
		t.Errorf("%.500s", got)
	}
	got := tryCreate(overridden(1, 1001, 1))
	if want := "spec.overrides: Too many: 1001: must have at most 1000 items"; !strings.Contains(got.String(), want) {
		t.Errorf("got %.500s, want %s", got, want)
	}
	if _, err := readSpec(overridden(16, 1000, 16)); err != nil {
		t.Errorf("the reader says %.500s", err)
	}
	if _, err := readSpec(overridden(1, 1001, 1)); err == nil {
		t.Error("the reader takes 1001 overrides")
	}
}

// apply applies an object on the server's side.
func apply(who, name, spec string) answer {
	return ask("PATCH", policies+"/"+name, strict+"&fieldManager="+who, policyObject(name, spec), applyPatch)
}

// TestTwoAppliersOfOneObject: limits are told apart by their names, so that each applier has its own; other lists belong to
// one of them, since their order means something.
func TestTwoAppliersOfOneObject(t *testing.T) {
	server(t)
	const name = "applied"
	t.Cleanup(func() { remove(t, name) })
	limit := func(name string, amount int) string {
		return fmt.Sprintf(`{"name":%q,"fixedWindow":{"limit":%d,"window":"1s"}}`, name, amount)
	}
	spec := func(limits, more string) string {
		return `{"key":["user"],"partitionBy":[],"limits":[` + limits + `]` + more + `}`
	}
	limits := func(a answer) string {
		var s v1alpha1.RateLimitPolicySpec
		if err := json.Unmarshal(a.object(t).Spec, &s); err != nil {
			t.Fatal(err)
		}
		if s.PartitionBy == nil || len(s.PartitionBy) != 0 {
			t.Errorf("partitionBy is %#v; an empty list is not none", s.PartitionBy)
		}
		var all []string
		for _, l := range s.Limits {
			all = append(all, fmt.Sprint(l.Name, l.FixedWindow.Limit))
		}
		return strings.Join(all, " ")
	}
	overrides := func(amount int) string {
		return fmt.Sprintf(`,"overrides":[{"when":{"user":"u"},"amounts":{"z":{"limit":%d}}}]`, amount)
	}
	expect := func(got answer, want string) {
		t.Helper()
		if got := limits(got); got != want {
			t.Errorf("limits are %s, want %s", got, want)
		}
	}
	expect(apply("anna", name, spec(limit("z", 1)+","+limit("a", 2), overrides(7))), "z1 a2")
	expect(apply("bert", name, spec(limit("b", 3), "")), "z1 a2 b3")
	expect(apply("anna", name, spec(limit("z", 5)+","+limit("a", 2), overrides(7))), "z5 a2 b3")
	for _, other := range []string{spec(limit("b", 3)+","+limit("z", 6), ""), spec(limit("b", 3), overrides(8))} {
		if got := apply("bert", name, other); got.status != http.StatusConflict || !strings.Contains(got.String(), `conflict with "anna"`) {
			t.Errorf("bert changes what is anna's: %d %s", got.status, got)
		}
	}
	expect(apply("anna", name, spec(limit("z", 5), overrides(7))), "z5 b3")
	if got := apply("anna", name, spec(limit("z", 5), `,"match":{"a":null}`)); !strings.Contains(got.String(), saysValue) {
		t.Errorf("an entry without a value is applied: %s", got)
	}
	twice := apply("anna", name, spec(limit("z", 5)+","+limit("z", 6), ""))
	if twice.String() == "" {
		t.Error("two limits of one name are taken")
	}
}

// status is what the operator would write.
const status = `{"status":{"observedGeneration":1,"enforced":{"version":"1.7","generation":1,"partitions":"2/3"},"conditions":[` +
	`{"type":"Accepted","status":"True","reason":"Accepted","message":"m","lastTransitionTime":"2026-01-02T03:04:05Z","observedGeneration":1},` +
	`{"type":"Programmed","status":"False","reason":"Pending","message":"m","lastTransitionTime":"2026-01-02T03:04:05Z","observedGeneration":1}]}}`

// TestKubectlShowsTheColumns, by every name that the kind has.
func TestKubectlShowsTheColumns(t *testing.T) {
	server(t)
	create(t, "shown", with(t, `{"domain":"video-api"}`))
	if got := ask("PATCH", policies+"/shown/status", strict, []byte(status), mergePatch); got.String() != "" {
		t.Fatal(got)
	}
	for _, name := range []string{"rlp", "ratelimitpolicies.quorate.dev", "quorate"} {
		lines := strings.Split(strings.TrimSpace(kubectl(t, "get", name)), "\n")
		if len(lines) != 2 {
			t.Fatalf("%s: %q", name, lines)
		}
		if got, want := strings.Fields(lines[0]), strings.Fields("NAME DOMAIN ACCEPTED PROGRAMMED PARTITIONS AGE"); !slices.Equal(got, want) {
			t.Errorf("%s: columns %v, want %v", name, got, want)
		}
		got := strings.Fields(lines[1])
		if want := strings.Fields("shown video-api True False 2/3"); len(got) != 6 || !slices.Equal(got[:5], want) {
			t.Errorf("%s: got %v, want %v and an age", name, got, want)
		}
	}
	if got, want := kubectl(t, "get", "rlp", "-o", "name"), "ratelimitpolicy.quorate.dev/shown\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestKubectlExplains a field with what stands beside it in the Go types.
func TestKubectlExplains(t *testing.T) {
	server(t)
	const want = "at most a tenth of the window"
	got := ""
	// What is explained is published a moment after the kind is served.
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		if a := ask("GET", "/openapi/v3/apis/quorate.dev/v1alpha1", "", nil); !strings.Contains(string(a.body), "slidingWindowCounter") {
			return false, nil
		}
		got = strings.Join(strings.Fields(kubectl(t, "explain", "rlp.spec.limits.rollingWindow.precision")), " ")
		return true, nil
	})
	if err != nil || !strings.Contains(got, want) {
		t.Errorf("%v: got %s, want in it %s", err, got, want)
	}
}

// TestStatusIsApart: who may write objects can't write their status, the operator's writes don't touch the spec, and only a
// change of the spec is another generation.
func TestStatusIsApart(t *testing.T) {
	server(t)
	create(t, "apart", base)
	path := policies + "/apart"
	if o := ask("PATCH", path, strict, []byte(status), mergePatch).object(t); len(o.Status) > 0 || o.Metadata.Generation != 1 {
		t.Errorf("status written beside the spec: %s, generation %d", o.Status, o.Metadata.Generation)
	}
	both := strings.Replace(status, `{"status"`, `{"spec":{"mode":"Shadow"},"status"`, 1)
	o := ask("PATCH", path+"/status", strict, []byte(both), mergePatch).object(t)
	if !strings.Contains(string(o.Status), `"2/3"`) || strings.Contains(string(o.Spec), "Shadow") || o.Metadata.Generation != 1 {
		t.Errorf("got status %s, spec %s, generation %d", o.Status, o.Spec, o.Metadata.Generation)
	}
	o = ask("PATCH", path, strict, []byte(`{"spec":{"mode":"Shadow"}}`), mergePatch).object(t)
	if !strings.Contains(string(o.Status), `"2/3"`) || o.Metadata.Generation != 2 {
		t.Errorf("got status %s, generation %d", o.Status, o.Metadata.Generation)
	}
}

// TestSelectableFields: objects are found by domain and quota, also those that leave them out.
func TestSelectableFields(t *testing.T) {
	server(t)
	create(t, "one", with(t, `{"domain":"a","quota":"x"}`))
	create(t, "two", with(t, `{"domain":"b","quota":"x"}`))
	create(t, "three", base)
	for selector, want := range map[string]string{
		"spec.domain=a": "one", "spec.domain!=a": "three two", "spec.quota=x": "one two", "spec.domain=b,spec.quota=x": "two",
		"spec.domain=": "three", "spec.quota=y": "",
	} {
		var names []string
		for _, o := range ask("GET", policies, "fieldSelector="+strings.NewReplacer("=", "%3D", "!", "%21").Replace(selector), nil).object(t).Items {
			names = append(names, o.Metadata.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %s, want %s", selector, got, want)
		}
	}
	if got := ask("GET", policies, "fieldSelector=spec.mode%3DEnforce", nil); got.status != http.StatusBadRequest {
		t.Errorf("spec.mode: got %d %s", got.status, got)
	}
}

// TestUnknownFields are refused for those who ask to be told, as kubectl does. For others they are dropped with a warning: a
// limit that is misspelt is missed, since a limit needs one algorithm.
func TestUnknownFields(t *testing.T) {
	server(t)
	misspelt := with(t, `{"onunavailable":"Deny"}`)
	if got := tryCreate(misspelt); got.status != http.StatusBadRequest || !strings.Contains(got.String(), `unknown field "spec.onunavailable"`) {
		t.Errorf("got %d %s", got.status, got)
	}
	got := ask("POST", policies, "dryRun=All", policyObject("p", misspelt))
	if len(got.warnings) != 1 || !strings.Contains(got.warnings[0], "spec.onunavailable") {
		t.Errorf("got %s, warnings %v", got, got.warnings)
	}
	got = ask("POST", policies, "dryRun=All", policyObject("p", strings.Replace(base, "rollingWindow", "rollingwindow", 1)))
	if !strings.Contains(got.String(), saysOne) {
		t.Errorf("got %s", got)
	}
}

// TestAGoProgramDeclaresAPolicy with the Go types, and the operator writes its status with them: all comes back as it went.
func TestAGoProgramDeclaresAPolicy(t *testing.T) {
	server(t)
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(api.env.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := decode([]byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.RateLimitPolicy{ObjectMeta: metav1.ObjectMeta{Name: "typed", Namespace: "default"}, Spec: spec}
	t.Cleanup(func() { remove(t, p.Name) })
	if err := c.Create(t.Context(), p, client.FieldValidation("Strict")); err != nil {
		t.Fatal(err)
	}
	p.Status = v1alpha1.RateLimitPolicyStatus{
		ObservedGeneration: 1,
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: "m",
			ObservedGeneration: 1, LastTransitionTime: metav1.Unix(1, 0),
		}},
		Enforced: &v1alpha1.Enforced{Version: "1.7", Generation: 1, Partitions: "3/3"},
	}
	want := *p.Status.DeepCopy()
	if err := c.Status().Update(t.Context(), p, &client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{FieldManager: "operator"}}); err != nil {
		t.Fatal(err)
	}
	var list v1alpha1.RateLimitPolicyList
	if err := c.List(t.Context(), &list, client.InNamespace("default"), client.MatchingFields{"spec.quota": "q"}); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("got %d objects", len(list.Items))
	}
	got := list.Items[0]
	if !reflect.DeepEqual(got.Spec, spec) {
		t.Errorf("spec %+v, want %+v", got.Spec, spec)
	}
	got.Status.Conditions[0].LastTransitionTime = want.Conditions[0].LastTransitionTime // the zone of a time isn't kept
	if !reflect.DeepEqual(got.Status, want) {
		t.Errorf("status %+v, want %+v", got.Status, want)
	}
}
