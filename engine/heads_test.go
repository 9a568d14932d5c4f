package engine_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/model"
)

// TestHeads: --heads reaches the policies that leave it open, an option of one's own comes first, and budgets of heads are of
// the model's weights.
func TestHeads(t *testing.T) {
	open := func(heads string) (*engine.Model, error) {
		return engine.Open(t.Context(), &engine.Options{Device: "cpu", CacheDType: "auto", Policies: "snapkv", Heads: heads}, io.Discard)
	}
	m, err := open("global")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, _, err := m.Policies("adakv,pyramidkv"); err == nil || !strings.Contains(err.Error(), "--heads global: adakv, pyramidkv: it shares its budget out itself") {
		t.Errorf("policies that none of --heads reaches: %v", err)
	}
	for policy, want := range map[string]string{"snapkv": "global", "snapkv(head-budgets=layer)": "layer", "adakv": "", "snapkv:quest": "global"} {
		p, err := m.PolicyWith(policy, "")
		if err != nil {
			t.Fatal(policy, err)
		}
		if _, set := p.Settings.Values()[eviction.HeadsOption]; set != (want != "") || set && eviction.HeadSharings()[p.Settings.Int(eviction.HeadsOption)] != want {
			t.Errorf("%s: %v, want %q", policy, p.Settings.Values(), want)
		}
	}

	sum, err := m.SHA256(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shares := make([][]float64, m.Config.Layers)
	for l := range shares {
		shares[l] = make([]float64, m.Config.KVHeads)
		for h := range shares[l] {
			shares[l][h] = 0.1 * float64(h+1)
		}
	}
	path := filepath.Join(t.TempDir(), "budgets.json")
	write := func(b eviction.HeadBudgets) {
		raw, err := b.Encode()
		if err == nil {
			err = os.WriteFile(path, raw, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(eviction.HeadBudgets{SHA256: sum, Budgets: []eviction.HeadShares{{Budget: 0.1, Heads: shares}}})
	learned, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer learned.Close()
	if p, err := learned.Policy("snapkv"); err != nil || p.Settings.Int(eviction.HeadsOption) != 3 || p.Settings.Resources.HeadBudgets == nil {
		t.Errorf("learned: %v, %v", p.Configured, err)
	}
	for what, c := range map[string]struct {
		b    eviction.HeadBudgets
		want string
	}{
		"of other weights": {eviction.HeadBudgets{SHA256: strings.Repeat("0", 64), Budgets: []eviction.HeadShares{{Budget: 0.1, Heads: shares}}}, "with the weights 000000000000"},
		"of another shape": {eviction.HeadBudgets{SHA256: sum, Budgets: []eviction.HeadShares{{Budget: 0.1, Heads: shares[:2]}}}, "got 2 layers, want 8"},
		"of none":          {eviction.HeadBudgets{SHA256: sum}, "got none"},
	} {
		write(c.b)
		if _, err := open(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	if b, err := open("shipped"); err != nil {
		t.Error(err)
	} else if p, err := b.Policy("snapkv"); err != nil || p.Settings.Resources.HeadBudgets.Label != "kvzip" {
		t.Errorf("shipped: %v, %v", p.Configured, err)
	}
	if err := os.Mkdir(filepath.Join(filepath.Dir(path), "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := open(filepath.Join(filepath.Dir(path), "folder")); err == nil {
		t.Error("a folder is taken")
	}
	if _, err := open("no/such"); err == nil || !strings.Contains(err.Error(), "no such file") || !strings.Contains(err.Error(), "equal, layer, global, learned, shipped") {
		t.Errorf("no file: %v", err)
	}
}

// TestForecastOfHeads: what is counted before the weights are loaded is what the heads' sharing takes: one ranking of all layers
// waits for all of them, and learned budgets are no reason to count a whole cache.
func TestForecastOfHeads(t *testing.T) {
	m, err := model.OpenShapes("", "cpu")
	if err != nil {
		t.Fatal(err)
	}
	need := func(policy, heads string) int64 {
		o := engine.Options{Device: "cpu", CacheDType: "auto", Policies: policy, Heads: heads}
		f, err := o.Memory(t.Context(), m, eviction.FootprintOptions{Tokens: 2000, Budget: 100, MaxNew: 8})
		if err != nil {
			t.Fatal(err)
		}
		return f.Parts[0].Bytes + f.Parts[1].Bytes
	}
	equal, full := need("snapkv", ""), need("full", "")
	for _, c := range []struct{ policy, heads string }{{"snapkv", "shipped"}, {"snapkv", "learned"}, {"snapkv(head-budgets=learned)", ""}, {"snapkv", "layer"}} {
		if got := need(c.policy, c.heads); got > equal+(full-equal)/4 {
			t.Errorf("%s, --heads %q: %d bytes, with equal heads %d, the full cache %d", c.policy, c.heads, got, equal, full)
		}
	}
	for _, c := range []struct{ policy, heads string }{{"snapkv", "global"}, {"snapkv(head-budgets=global)", ""}} {
		if got := need(c.policy, c.heads); got < full-(full-equal)/4 {
			t.Errorf("%s, --heads %q: %d bytes, with equal heads %d, the full cache %d, which it holds at first", c.policy, c.heads, got, equal, full)
		}
	}
}
