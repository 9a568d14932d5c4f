package serving

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/engine"
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
		if err := m.AddAdapters(ctx, spec); err != nil {
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
