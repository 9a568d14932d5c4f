package eviction_test

import (
	"fmt"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model/modeltest"
)

// unpooledPolicies observe attention and have no kernel, for a reason.
var unpooledPolicies = map[string]string{
	"oracle":  "it is what others are judged by",
	"cam":     "it keeps by place; attention only says what is merged",
	"adakv":   "its scorer has one",
	"compose": "its scorer has one",
}

// TestEveryAttentionPolicyPools: the choice of pooling is the same for all that rank by
// attention, or by what gates have learned of it, and a width that nothing in a prompt has is refused.
func TestEveryAttentionPolicyPools(t *testing.T) {
	m := modeltest.Llama{Layers: 2}.Open(t, "cpu")
	found := 0
	for _, name := range eviction.Policies.Names() {
		info, err := eviction.Policies.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		p := policy(t, m, name)
		c := p.Method.Plan(eviction.Prompt{Tokens: make([]int32, 90), Entries: 90, Budget: 20, Config: &m.Config, Response: []int32{1}, Draft: []int32{1}}).Capture
		attends := c.AllRows || len(c.Windows)+len(c.Probes)+len(c.PeakWindows)+len(c.PeakProbes)+len(c.Gates) > 0
		i := slices.IndexFunc(info.Options, func(o eviction.Option) bool { return o.Name == "kernel" })
		reason, excused := unpooledPolicies[name]
		if pools := i >= 0; pools != (attends && !excused) {
			t.Errorf("%s: observes attention: %v, has an option kernel: %v (%s)", name, attends, pools, reason)
		}
		if i < 0 {
			continue
		}
		found++
		for _, width := range []string{"0", "2", "4097", "9223372036854775807", "-1"} {
			if _, err := eviction.ParseOverrides([]string{name + ".kernel=" + width}); err == nil {
				t.Errorf("%s takes a kernel of %s", name, width)
			}
		}
	}
	if found < 13 {
		t.Errorf("%d policies have an option kernel, want at least 13", found)
	}
}

// TestPoolingIsTheSameForAll: on every backend the scores that a kernel gives are the
// largest around each entry of those that no kernel gives, in all policies.
func TestPoolingIsTheSameForAll(t *testing.T) {
	for _, device := range kernels.Backends.Names() {
		m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, device)
		tokens := modeltest.Tokens(m, 4, 120)
		for _, name := range modeltest.Some(t, eviction.Policies.Names()) {
			info, _ := eviction.Policies.Lookup(name)
			if !slices.ContainsFunc(info.Options, func(o eviction.Option) bool { return o.Name == "kernel" }) || name == "laq" || name == "laq++" {
				continue // their second look is at what the first has left to draft on
			}
			scores := func(kernel int) (*eviction.Session, [][][]float32) {
				s := prefill(t, m, policy(t, m, name, fmt.Sprintf("%s.kernel=%d", name, kernel)), tokens, 24)
				return s, s.Scores()
			}
			s, plain := scores(1)
			changed := 0
			method := policy(t, m, name).Method
			recentOf := func(layer int) int {
				prompt := s.Prompt
				if method.Plan(prompt).CrossLayer != nil { // a layer has its own budget
					prompt.Budget = len(s.Kept()[layer][0])
				}
				return method.Plan(prompt).Recent
			}
			for _, kernel := range []int{3, 7, 301} {
				_, pooled := scores(kernel)
				for l := range plain {
					for h, x := range plain[l] {
						want := slices.Clone(x)
						end := len(x) - recentOf(l)
						for j := range end {
							want[j] = slices.Max(x[max(0, j-kernel/2):min(end, j+kernel/2+1)])
						}
						if !slices.Equal(pooled[l][h], want) {
							t.Errorf("%s %s kernel=%d layer %d head %d: scores %.3v, want %.3v", device, name, kernel, l, h, pooled[l][h], want)
						}
						if !slices.Equal(pooled[l][h], x) {
							changed++
						}
					}
				}
			}
			if changed == 0 {
				t.Errorf("%s %s: a kernel changes nothing", device, name)
			}
		}
	}
}
