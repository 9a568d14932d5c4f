package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"glimpse/checkpoints"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/builtin"
	"glimpse/model/hub"

	"github.com/spf13/pflag"
)

// shipped names the adapters that come with the built-in model.
const shipped = "shipped"

// setup is what all commands that run a model share.
type setup struct {
	model, device string
	adapters      []string
	set           []string
	seed          uint64
}

func (s *setup) bind(f *pflag.FlagSet) {
	f.StringVar(&s.model, "model", "", "model folder, or org/name[@revision] of the Hugging Face hub, which is downloaded once; empty is the built-in model")
	f.StringVar(&s.device, "device", "cpu", "where to compute")
	f.StringArrayVar(&s.adapters, "adapter", nil, "adapter folder for the learned policy of its kind, as DIR or NAME=DIR; may be repeated; \"shipped\" are those of the built-in model, and its default")
	f.StringArrayVar(&s.set, "set", nil, "option of a policy, as policy.option=value; may be repeated")
	f.Uint64Var(&s.seed, "seed", 1, "seed of everything that draws")
}

// adapter is a loaded adapter.
type adapter struct {
	name    string
	pooling int
	model.Adapter
}

// loaded is a model with adapters and policy options.
type loaded struct {
	*model.Model
	adapters  []adapter
	overrides eviction.Overrides
	set       eviction.Overrides // those of the command line
	seed      uint64
}

// open loads the model, the adapters and the options; the options are checked
// before anything is read. log takes the progress of a download.
func (s *setup) open(ctx context.Context, log io.Writer) (*loaded, error) {
	set, err := eviction.ParseOverrides(s.set)
	if err != nil {
		return nil, err
	}
	m, err := hub.Open(ctx, s.model, log, model.Options{Device: s.device})
	if err != nil {
		return nil, err
	}
	l := &loaded{Model: m, set: set, seed: s.seed}
	if err := l.fill(ctx, s); err != nil {
		m.Close()
		return nil, err
	}
	return l, nil
}

// policyDefaults is an optional file of a model folder: options of policies that
// suit this model, as {"snapkv": {"kernel": 3}}. Options given on the command line
// win.
const policyDefaults = "glimpse_policies.json"

func (l *loaded) fill(ctx context.Context, s *setup) error {
	var err error
	if l.overrides, err = readDefaults(l.Folder()); err != nil {
		return fmt.Errorf("model %s: %s: %w", l.Name, policyDefaults, err)
	}
	for policy, options := range l.set {
		if l.overrides[policy] == nil {
			l.overrides[policy] = make(map[string]float64)
		}
		maps.Copy(l.overrides[policy], options)
	}
	specs := s.adapters
	if len(specs) == 0 && s.model == "" {
		specs = []string{shipped}
	}
	if len(specs) == 0 {
		return nil
	}
	hash, err := l.SHA256(ctx)
	if err != nil {
		return err
	}
	for _, spec := range specs {
		if err := l.addAdapter(spec, hash); err != nil {
			return err
		}
	}
	return nil
}

func readDefaults(folder fs.FS) (eviction.Overrides, error) {
	raw, err := fs.ReadFile(folder, policyDefaults)
	if errors.Is(err, fs.ErrNotExist) {
		return make(eviction.Overrides), nil
	}
	if err != nil {
		return nil, err
	}
	var values map[string]map[string]float64
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, err
	}
	var assignments []string
	for policy, options := range values {
		for option, v := range options {
			assignments = append(assignments, fmt.Sprintf("%s.%s=%v", policy, option, v))
		}
	}
	return eviction.ParseOverrides(assignments)
}

// addAdapter loads one adapter, or all that ship with the built-in model.
func (l *loaded) addAdapter(spec, hash string) error {
	if spec == shipped {
		if l.Name != builtin.Name {
			return fmt.Errorf("adapter %q: only the built-in model has shipped adapters", spec)
		}
		kinds, err := fs.ReadDir(builtin.Adapters(), ".")
		if err != nil {
			return err
		}
		for _, kind := range kinds {
			stored, err := checkpoints.ReadAdapterFS(builtin.Adapters(), kind.Name())
			if err != nil {
				return err
			}
			if err := l.take(shipped, hash, stored); err != nil {
				return err
			}
		}
		return nil
	}
	name, dir, ok := strings.Cut(spec, "=")
	if !ok {
		name, dir = "", spec
	}
	stored, err := checkpoints.ReadAdapter(dir)
	if err != nil {
		return err
	}
	return l.take(name, hash, stored)
}

func (l *loaded) take(name, hash string, stored *checkpoints.Adapter) error {
	a, err := l.LoadAdapter(hash, stored)
	if err != nil {
		return err
	}
	for _, other := range l.adapters {
		if other.name == name && other.Kind() == a.Kind() {
			return fmt.Errorf("two adapters of kind %q named %q; name them, as NAME=DIR", a.Kind(), name)
		}
	}
	l.adapters = append(l.adapters, adapter{name: name, pooling: stored.PoolingKernel, Adapter: a})
	return nil
}

// contenders makes the named policies; a learned one once per adapter of its
// kind.
func (l *loaded) contenders(list string) ([]evaluation.Contender, error) {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name == "all" {
			names = append(names, eviction.Policies.Names()...)
		} else {
			names = append(names, name)
		}
	}
	var out []evaluation.Contender
	for i, name := range names {
		policy, err := eviction.LookupPolicy(name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("policy %s twice", name)
		}
		if policy.Adapter == "" {
			named, err := eviction.New(name, l.seed, l.overrides, nil)
			if err != nil {
				return nil, err
			}
			out = append(out, evaluation.Contender{Named: named})
			continue
		}
		found := false
		for _, a := range l.adapters {
			if a.Kind() != policy.Adapter {
				continue
			}
			found = true
			named, err := eviction.New(name, l.seed, l.withPooling(name, a.pooling), a.Adapter)
			if err != nil {
				return nil, err
			}
			out = append(out, evaluation.Contender{Named: named, Adapter: a.name})
		}
		if !found {
			return nil, fmt.Errorf("policy %s: needs an adapter of kind %q; train one and give it with --adapter", name, policy.Adapter)
		}
	}
	return out, nil
}

// withPooling sets the kernel that the adapter asks for, unless the command line
// chose one.
func (l *loaded) withPooling(policy string, kernel int) eviction.Overrides {
	out := maps.Clone(l.overrides)
	out[policy] = maps.Clone(out[policy])
	if out[policy] == nil {
		out[policy] = make(map[string]float64)
	}
	if _, chosen := l.set[policy]["kernel"]; !chosen {
		out[policy]["kernel"] = float64(kernel)
	}
	return out
}
