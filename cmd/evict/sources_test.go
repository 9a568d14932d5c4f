package main

import (
	"os"
	"strings"
	"testing"

	"glimpse/eviction"
)

// TestPolicySources: anyone can open what a policy names as its source, and docs/papers.md
// has it with authors and title.
func TestPolicySources(t *testing.T) {
	data, err := os.ReadFile("../../docs/papers.md")
	if err != nil {
		t.Fatal(err)
	}
	papers := string(data)
	for _, name := range eviction.Policies.Names() {
		p, err := eviction.Policies.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Source == "baseline" || p.Source == "control" {
			continue
		}
		found := inSources.FindAllString(p.Source, -1)
		if len(found) == 0 {
			t.Errorf("%s: source %q, want one with arXiv:NUMBER or an address", name, p.Source)
		}
		for _, f := range found {
			if !strings.Contains(papers, strings.TrimPrefix(f, "arXiv:")) {
				t.Errorf("%s: docs/papers.md lacks %s", name, f)
			}
		}
		if !strings.Contains(papers, "`"+name+"`") {
			t.Errorf("%s: docs/papers.md does not say where it is from", name)
		}
	}
}

func TestLinkedSources(t *testing.T) {
	got := linked("CaM (ICML, openreview.net/forum?id=x) §3; H2O (Zhang et al. 2023, arXiv:2306.14048)")
	want := "CaM (ICML, [openreview.net/forum?id=x](https://openreview.net/forum?id=x)) §3; H2O (Zhang et al. 2023, [arXiv:2306.14048](https://arxiv.org/abs/2306.14048))"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
