package lineup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"glimpse/adapters"
	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/hub"
)

// adapter is a loaded adapter.
type adapter struct {
	name    string
	pooling int
	sha256  string // see checkpoints.Adapter.SHA256
	asked   string // see found
	model.Adapter
}

// found is an adapter that there is for a model.
type found struct {
	name   string // as it is reported
	from   string // that it was found in: an item of Options.Adapters, or Shipped
	asked  string // from, of one that must be used; "" where a default has brought it
	stored *checkpoints.Adapter
}

// find reads the adapters that there are for a model, which may be without weights yet: those that are asked for, or
// else by default, or else the shipped ones.
func (s *Options) find(ctx context.Context, m *model.Model) (all []found, err error) {
	specs, err := withSweeps(s.Adapters)
	if err != nil {
		return nil, err
	}
	for _, spec := range specs {
		some, err := s.findIn(ctx, m, spec, !s.AdaptersByDefault)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	if len(all) == 0 && (len(specs) == 0 || s.AdaptersByDefault) {
		return s.findIn(ctx, m, Shipped, false)
	}
	return all, nil
}

// findIn reads what one item stands for: an adapter, or all that a registry has for the model.
func (s *Options) findIn(ctx context.Context, m *model.Model, spec string, asked bool) ([]found, error) {
	f := found{from: spec}
	if asked {
		f.asked = spec
	}
	name, dir, ok := strings.Cut(spec, "=")
	if !ok || objectstore.IsURL(spec) {
		name, dir = "", spec
	}
	f.name = name
	var r *checkpoints.Registry
	var err error
	if spec == Shipped {
		f.name = Shipped
		r, err = adapters.Registry()
	} else {
		if f.stored, err = objectstore.ReadAdapter(ctx, dir, s.S3); err == nil {
			return []found{f}, nil
		}
		if !errors.Is(err, checkpoints.ErrNotAdapter) {
			return nil, err
		}
		none := fmt.Errorf("%w, or one with a %s", err, checkpoints.RegistryFile)
		var done func()
		if r, done, err = objectstore.OpenRegistry(ctx, dir, s.S3); errors.Is(err, fs.ErrNotExist) {
			return nil, none
		}
		if err == nil {
			defer done()
		}
	}
	if err != nil {
		return nil, err
	}
	listed, err := registered(ctx, r, m)
	if err != nil {
		return nil, err
	}
	if listed == nil && asked {
		return nil, fmt.Errorf("adapter %q: the registry has none for the weights of model %s; it has adapters for: %s", spec, m.Name, r.ListModels())
	}
	if listed == nil {
		return nil, nil
	}
	stored, err := r.ReadAdapters(listed)
	if err != nil {
		return nil, fmt.Errorf("adapter %q: %w", spec, err)
	}
	var all []found
	for _, f.stored = range stored {
		all = append(all, f)
	}
	return all, nil
}

// registered is the entry of a model's weights, nil for none. They are hashed only where the shape fits an entry.
func registered(ctx context.Context, r *checkpoints.Registry, m *model.Model) (*checkpoints.RegisteredModel, error) {
	fits := fitting(r, m)
	for _, names := range []func(recorded string) (string, error){
		func(string) (string, error) { return m.SHA256(ctx) },
		func(recorded string) (string, error) { return m.KnownAs(ctx, recorded) }, // also as earlier versions named weights
	} {
		for _, e := range fits {
			if sum, err := names(e.SHA256); errors.Is(err, checkpoints.ErrNoTensor) || errors.Is(err, checkpoints.ErrDType) {
				return nil, nil // what is wrong with the weights is told when they are loaded, all of it
			} else if err != nil {
				return nil, err
			} else if sum == e.SHA256 {
				return e, nil
			}
		}
	}
	return nil, nil
}

// fitting are the entries that a model's shape does not exclude.
func fitting(r *checkpoints.Registry, m *model.Model) (all []*checkpoints.RegisteredModel) {
	for i := range r.Models {
		if r.Models[i].Fits(m.Config.Hidden, m.Config.Layers) {
			all = append(all, &r.Models[i])
		}
	}
	return all
}

// MayShip tells that an adapter for a policy may ship for a model, as far as its shape tells: m may be without weights.
func MayShip(m *model.Model, policy string) (bool, error) {
	r, err := adapters.Registry()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(fitting(r, m), func(e *checkpoints.RegisteredModel) bool {
		return slices.ContainsFunc(e.Adapters, func(a checkpoints.RegisteredAdapter) bool { return model.PolicyOf(a.Kind) == policy })
	}), nil
}

// CheckAdapters is an error where a policy of the list needs an adapter and none is given nor can be shipped, by the
// model's config.json, which is all of it that is fetched.
func (s *Options) CheckAdapters(ctx context.Context, policies string) error {
	if len(s.Adapters) > 0 {
		return nil
	}
	set, err := eviction.ParseOverrides(s.Set)
	if err != nil {
		return err
	}
	var m *model.Model
	return EachNeeded(policies, set, func(policy, kind string) error {
		if m == nil {
			if m, err = hub.OpenShapes(ctx, s.Model, s.S3, nil, "cpu"); err != nil {
				return err
			}
		}
		if may, err := MayShip(m, kind); may || err != nil {
			return err
		}
		return needsAdapter(policy, kind)
	})
}

// CheckAdapters is an error where a policy of the list needs an adapter and there is none for the model.
func (l *Lineup) CheckAdapters(policies string) error {
	return EachNeeded(policies, l.overrides, func(policy, kind string) error {
		if slices.ContainsFunc(l.found, func(f found) bool { return model.PolicyOf(f.stored.Kind) == kind }) {
			return nil
		}
		return needsAdapter(policy, kind)
	})
}

// EachNeeded calls f with every policy of the list that cannot be left out and needs an adapter, and the adapter's kind.
func EachNeeded(policies string, overrides eviction.Overrides, f func(policy, kind string) error) error {
	specs, err := parsePolicies(policies)
	if err != nil {
		return err
	}
	for _, spec := range specs {
		needs, err := eviction.NeedsOf(spec.name, merged(overrides, spec.set))
		if err == nil && needs.Adapter != "" && !spec.may {
			err = f(spec.name, needs.Adapter)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func needsAdapter(policy, kind string) error {
	return fmt.Errorf("policy %s: %w an adapter of kind %q; train one and give it with --adapter", policy, errNeeds, kind)
}

// WithoutAdapter is the policy of a model that has no adapter, and WithAdapter that of one that has several.
const (
	WithoutAdapter = "snapkv"
	WithAdapter    = "lookaheadkv"
)

// DefaultPolicy is the policy where none is asked for: that of the adapter that there is. From is where a default has
// found it, "" where it was asked for or there is none.
func (l *Lineup) DefaultPolicy() (policy, from string) {
	if len(l.found) == 0 {
		return WithoutAdapter, ""
	}
	chosen := l.found[max(0, slices.IndexFunc(l.found, func(f found) bool { return model.PolicyOf(f.stored.Kind) == WithAdapter }))]
	if chosen.asked == "" {
		from = chosen.from
	}
	return model.PolicyOf(chosen.stored.Kind), from
}

// addAdapter loads an adapter.
func (l *Lineup) addAdapter(ctx context.Context, f found) error {
	a, err := l.LoadAdapter(ctx, f.stored)
	if err != nil {
		return err
	}
	for _, other := range l.adapters {
		if other.name == f.name && other.Kind() == a.Kind() {
			return fmt.Errorf("two adapters of kind %q named %q; name them, as NAME=DIR", a.Kind(), f.name)
		}
	}
	l.adapters = append(l.adapters, adapter{name: f.name, pooling: f.stored.PoolingKernel, sha256: f.stored.SHA256(), asked: f.asked, Adapter: a})
	return nil
}
