package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/listing"
	"glimpse/model/runner"
)

// openShadow makes the policy of an adapter: of one that is loaded, as ADAPTER or POLICY/ADAPTER, of one in a folder or a
// bucket, as DIR or NAME=DIR, which requests then cannot ask for, or of the shipped ones. Of several that a name has, it is the
// one that the answers' policy does not use.
func openShadow(ctx context.Context, m *engine.Model, spec, answers string) (engine.Policy, error) {
	fail := func(err error) (engine.Policy, error) {
		return engine.Policy{}, fmt.Errorf("--shadow %s: %w", spec, err)
	}
	named := func(name string) []engine.AdapterInfo {
		return slices.DeleteFunc(m.Adapters(), func(a engine.AdapterInfo) bool {
			return a.Name != name && engine.NameWithAdapter(a.Policy, a.Name) != name
		})
	}
	found := named(spec)
	if len(found) == 0 {
		name, _, ok := strings.Cut(spec, "=")
		load := spec
		policy, isShipped := strings.CutSuffix(spec, "/"+engine.Shipped)
		if _, err := eviction.Policies.Lookup(policy); isShipped && err == nil || spec == engine.Shipped {
			name, load = engine.Shipped, engine.Shipped
		} else if !ok || objectstore.IsURL(spec) {
			name, load = "shadow", "shadow="+spec
		}
		loaded, err := m.LoadAdapters(ctx, load)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("no folder, and no adapter of the server, which has %s: %w", cmp.Or(names(m.Adapters()), "none"), err)
		}
		if err == nil {
			err = m.AddAdapters(loaded)
		}
		if err != nil {
			return fail(err)
		}
		defer m.RemoveAdapters(name) // its policy goes on
		if found = named(spec); len(found) == 0 {
			found = named(name)
		}
	}
	if len(found) > 1 {
		policy, _, _ := strings.Cut(answers, "(")
		found = slices.DeleteFunc(found, func(a engine.AdapterInfo) bool {
			return policy == a.Policy || policy == engine.NameWithAdapter(a.Policy, a.Name)
		})
	}
	if len(found) != 1 {
		return fail(fmt.Errorf("got the adapters %s of this name, want one of them", names(found)))
	}
	p, err := m.PolicyWith(found[0].Policy, found[0].Name)
	if err != nil {
		return fail(err)
	}
	return p, nil
}

// names are the adapters as --shadow takes them.
func names(all []engine.AdapterInfo) string {
	return strings.Join(listing.Map(all, func(a engine.AdapterInfo) string { return engine.NameWithAdapter(a.Policy, a.Name) }), ", ")
}

// studyAnswer observes what an answer attends to, and what its policy, the shadow and the oracle keep.
func (i *idle) studyAnswer(ctx context.Context, rt *eviction.Runtime, a *answered) (*eviction.Study, error) {
	policies := []*eviction.Configured{a.policy.Configured, i.shadow.Configured, i.oracle}
	prompt := eviction.Prompt{Tokens: a.prompt, MaxNew: a.generate.MaxNew, Response: a.response, Keep: a.keep}
	return rt.Study(ctx, policies, prompt, []int{a.pairs}, runner.GenerateOptions{})
}

func (i *idle) countCompare(ctx context.Context, rt *eviction.Runtime, a *answered) error {
	_, err := i.studyAnswer(ctx, rt, a)
	return err
}

// compareKept measures how much of the answer's attention went to entries that the answer's policy and the shadow keep.
func (i *idle) compareKept(ctx context.Context, a *answered) error {
	study, err := i.studyAnswer(ctx, i.runtime, a)
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
