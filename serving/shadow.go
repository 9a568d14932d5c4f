package serving

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/engine"
	"glimpse/eviction"
)

// openShadow makes the policy of an adapter: of one that is loaded, as ADAPTER or POLICY/ADAPTER, or of one in a folder or a
// bucket, as DIR or NAME=DIR, which requests then cannot ask for.
func openShadow(ctx context.Context, m *engine.Model, spec string) (engine.Policy, error) {
	named := func(name string) []engine.AdapterInfo {
		return slices.DeleteFunc(m.Adapters(), func(a engine.AdapterInfo) bool {
			return a.Name != name && engine.NameWithAdapter(a.Policy, a.Name) != name
		})
	}
	found := named(spec)
	if len(found) == 0 {
		name, _, ok := strings.Cut(spec, "=")
		if !ok || objectstore.IsURL(spec) {
			name, spec = "shadow", "shadow="+spec
		}
		loaded, err := m.LoadAdapters(ctx, spec)
		if err == nil {
			err = m.AddAdapters(loaded)
		}
		if err != nil {
			return engine.Policy{}, fmt.Errorf("shadow: %w", err)
		}
		defer m.RemoveAdapters(name) // its policy goes on
		found = named(name)
	}
	if len(found) != 1 {
		return engine.Policy{}, fmt.Errorf("shadow %q: got %d adapters, want one, as POLICY/ADAPTER", spec, len(found))
	}
	p, err := m.PolicyWith(found[0].Policy, found[0].Name)
	if err != nil {
		return p, fmt.Errorf("shadow: %w", err)
	}
	return p, nil
}

// compare measures what the answer's policy and the shadow keep by what the answer has attended to.
func (i *idle) compare(ctx context.Context, a *answered) error {
	policies := []*eviction.Configured{a.policy.Configured, i.shadow.Configured, i.oracle}
	before := i.runtime.MaxNew
	i.runtime.MaxNew = a.generate.MaxNew
	defer func() { i.runtime.MaxNew = before }()
	study, err := i.runtime.StudyResponse(ctx, policies, a.prompt, a.response, []int{a.pairs})
	if err != nil {
		return err
	}
	critical := study.Choices[2].Kept
	live, shadow := eviction.HitRate(study.Choices[0].Kept, critical), eviction.HitRate(study.Choices[1].Kept, critical)
	of, by := a.policy.NameWithAdapter(), i.shadow.NameWithAdapter()
	i.metrics.shadow.WithLabelValues(of).Observe(live)
	i.metrics.shadow.WithLabelValues(by).Observe(shadow)
	i.log.Info("shadowed", "id", a.id, "budget", a.pairs, "policy", of, "hit_rate", live, "shadow", by, "shadow_hit_rate", shadow)
	return nil
}
