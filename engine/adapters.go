package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/adapters"
	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/hub"
)

// adapter is an adapter that there is for a model.
type adapter struct {
	name          string // as it is reported
	from          string // that it was found in: an item of Options.Adapters, or Shipped
	asked         string // from, of one that must be used; "" where a default has brought it
	stored        *checkpoints.Adapter
	sum           string // stored.SHA256, once the weights are loaded
	model.Adapter        // nil before the weights are loaded
}

// findAdapters reads the adapters that there are for a model, which may be without weights yet: those that are asked for, or
// else by default, or else the shipped ones.
func (o *Options) findAdapters(ctx context.Context, m *model.Model) (all []adapter, err error) {
	specs, err := withSweeps(o.Adapters)
	if err != nil {
		return nil, err
	}
	for _, spec := range specs {
		some, err := o.findIn(ctx, m, spec, !o.AdaptersByDefault)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	if len(all) == 0 && (len(specs) == 0 || o.AdaptersByDefault) {
		return o.findIn(ctx, m, Shipped, false)
	}
	return all, nil
}

// findIn reads what one item stands for: an adapter, or all that a registry has for the model.
func (o *Options) findIn(ctx context.Context, m *model.Model, spec string, asked bool) (all []adapter, err error) {
	f := adapter{from: spec}
	if asked {
		f.asked = spec
	}
	name, dir, ok := strings.Cut(spec, "=")
	if !ok || objectstore.IsURL(spec) {
		name, dir = "", spec
	}
	f.name = name
	if spec == Shipped {
		return f.shipped(ctx, m)
	}
	if f.stored, err = objectstore.ReadAdapter(ctx, dir, o.S3); err == nil {
		return []adapter{f}, nil
	}
	if !errors.Is(err, checkpoints.ErrNotAdapter) {
		return nil, err
	}
	none := fmt.Errorf("%w, or one with a %s", err, checkpoints.RegistryFile)
	r, done, err := objectstore.OpenRegistry(ctx, dir, o.S3)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	defer done()
	return f.listed(ctx, m, r)
}

// shipped are the adapters that come with the programs, by the name of f.
func (f adapter) shipped(ctx context.Context, m *model.Model) ([]adapter, error) {
	f.name = cmp.Or(f.name, Shipped)
	r, err := adapters.Registry()
	if err != nil {
		return nil, err
	}
	return f.listed(ctx, m, r)
}

// listed are the adapters that a registry has for the model, by the name of f; none is an error where they are asked for.
func (f adapter) listed(ctx context.Context, m *model.Model, r *checkpoints.Registry) (all []adapter, err error) {
	entry, err := registered(ctx, r, m)
	if err != nil {
		return nil, err
	}
	if entry == nil && f.asked != "" {
		return nil, fmt.Errorf("adapter %q: the registry has none for the weights of model %s; it has adapters for: %s", f.from, m.Name, r.ListModels())
	}
	if entry == nil {
		return nil, nil
	}
	stored, err := r.ReadAdapters(entry)
	if err != nil {
		return nil, fmt.Errorf("adapter %q: %w", f.from, err)
	}
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

// CheckAdapters is an error where a policy needs an adapter and none is given nor can be shipped, by the
// model's config.json, which is all of it that is fetched.
func (o *Options) CheckAdapters(ctx context.Context) error {
	if err := o.fillByName(); err != nil {
		return err
	}
	if lacks, err := o.Lacking(nil); err != nil || len(lacks) == 0 {
		return err
	}
	m, err := hub.OpenShapes(ctx, o.Model, o.S3, nil, "cpu")
	if err != nil {
		return err
	}
	return firstLack(o.Lacking(m))
}

// Lacking are the policies that need an adapter where none is given, nor may ship for m as far as its shape
// tells: it may be without weights; nil: none ships.
func (o *Options) Lacking(m *model.Model) ([]Lack, error) {
	if len(o.Adapters) > 0 || o.PolicyByDefault {
		return nil, nil
	}
	overrides, err := eviction.ParseOverrides(o.Set)
	if err != nil {
		return nil, err
	}
	ships, err := adapters.Registry()
	if err != nil {
		return nil, err
	}
	return lacking(o.Policies, overrides, func(kind string) bool {
		return m != nil && slices.ContainsFunc(fitting(ships, m), func(e *checkpoints.RegisteredModel) bool {
			return slices.ContainsFunc(e.Adapters, func(a checkpoints.RegisteredAdapter) bool { return model.PolicyOf(a.Kind) == kind })
		})
	})
}

// checkAdapters is an error where a policy of the list needs an adapter and there is none for the model.
func (m *Model) checkAdapters(policies string) error {
	return firstLack(lacking(policies, m.overrides, func(kind string) bool {
		return slices.ContainsFunc(m.adapters, func(a adapter) bool { return model.PolicyOf(a.stored.Kind) == kind })
	}))
}

// Lack is a policy without the adapter that it needs.
type Lack struct{ Policy, Kind string }

func (l Lack) error() error {
	return fmt.Errorf("policy %s: %w an adapter of kind %q; train one and give it with --adapter", l.Policy, errNeeds, l.Kind)
}

func firstLack(all []Lack, err error) error {
	if err != nil || len(all) == 0 {
		return err
	}
	return all[0].error()
}

// lacking are the policies of a list that cannot be left out and need an adapter of a kind that there is not.
func lacking(list string, overrides eviction.Overrides, has func(kind string) bool) (out []Lack, err error) {
	specs, err := parsePolicies(list)
	for _, spec := range specs {
		needs, err := eviction.NeedsOf(spec.name, merged(overrides, spec.set))
		if err != nil {
			return nil, err
		}
		for _, kind := range []string{needs.Adapter, needs.ScorerAdapter} {
			if kind != "" && !spec.may && !has(kind) {
				out = append(out, Lack{spec.name, kind})
			}
		}
	}
	return out, err
}

// WithoutAdapter is the policy of a model that has no adapter, and WithAdapter that of one that has several. Lossless is the
// one that keeps and reads the whole cache.
const (
	WithoutAdapter = "snapkv"
	WithAdapter    = "lookaheadkv"
	Lossless       = "full"
)

// DefaultPolicy is the policy where none is asked for: that of the adapter that there is. From is where a default has
// found it, "" where it was asked for or there is none.
func (m *Model) DefaultPolicy() (policy, from string) {
	if len(m.adapters) == 0 {
		return WithoutAdapter, ""
	}
	chosen := m.adapters[max(0, slices.IndexFunc(m.adapters, func(a adapter) bool { return model.PolicyOf(a.stored.Kind) == WithAdapter }))]
	if chosen.asked == "" {
		from = chosen.from
	}
	return model.PolicyOf(chosen.stored.Kind), from
}

// ErrAdapterName: there is an adapter of the kind and name already.
var ErrAdapterName = errors.New("two adapters of one kind and name; name them, as NAME=DIR")

// loadAdapters loads the adapters that were found.
func (m *Model) loadAdapters(ctx context.Context, log io.Writer) (err error) {
	found := m.adapters
	m.adapters = nil
	for _, a := range found {
		if err := m.loadAdapter(ctx, a); err != nil {
			return err
		}
		if other := m.OtherFormat(a.stored.Base); other != "" && log != nil {
			fmt.Fprintf(log, "adapter %s %s\n", cmp.Or(a.name, a.Kind()), other)
		}
	}
	return nil
}

func (m *Model) loadAdapter(ctx context.Context, a adapter) (err error) {
	if err = a.loadAdapter(ctx, m.Model); err != nil {
		return err
	}
	return m.addAdapter(a)
}

func (a *adapter) loadAdapter(ctx context.Context, m *model.Model) (err error) {
	a.sum = a.stored.SHA256()
	a.Adapter, err = m.LoadAdapter(ctx, a.stored)
	return err
}

func (m *Model) hasAdapter(kind, name string) bool {
	return slices.ContainsFunc(m.adapters, func(a adapter) bool { return a.name == name && a.Kind() == kind })
}

func (m *Model) addAdapter(a adapter) error {
	if m.hasAdapter(a.Kind(), a.name) {
		return fmt.Errorf("adapter of kind %q named %q: %w", a.Kind(), a.name, ErrAdapterName)
	}
	m.adapters = append(m.adapters, a)
	return nil
}

// IsSweep tells that an adapter's place is the folder of a sweep, which stands for all of its
// adapters, each by its name in the sweep.
func IsSweep(spec string) bool {
	if spec == Shipped || strings.Contains(spec, "=") || objectstore.IsURL(spec) {
		return false
	}
	_, err := os.Stat(filepath.Join(spec, checkpoints.SweepFile))
	return err == nil
}

// withSweeps are adapters with a sweep's adapters in the place of its folder.
func withSweeps(specs []string) (out []string, err error) {
	for _, spec := range specs {
		if !IsSweep(spec) {
			out = append(out, spec)
			continue
		}
		points, err := checkpoints.ReadSweep(spec)
		if err != nil {
			return nil, err
		}
		for _, p := range points {
			out = append(out, p.Name+"="+p.Folder)
		}
	}
	return out, nil
}
