package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"glimpse/checkpoints"
	"glimpse/model"
)

// AdapterInfo is an adapter that is loaded.
type AdapterInfo struct {
	Name   string
	Kind   string
	Policy string // that takes it
	SHA256 string
	From   string // where it was found
}

// Adapters are those that are loaded.
func (m *Model) Adapters() (all []AdapterInfo) {
	for _, a := range m.adapters {
		all = append(all, AdapterInfo{a.name, a.Kind(), model.PolicyOf(a.Kind()), a.sum, a.from})
	}
	return all
}

// LoadedAdapters are adapters that a model may take (Model.AddAdapters).
type LoadedAdapters []adapter

// LoadAdapters loads what an item of Options.Adapters stands for, which must be for the model, while the model is used: it has them
// with AddAdapters.
func (m *Model) LoadAdapters(ctx context.Context, spec string) (LoadedAdapters, error) {
	found, err := m.asked.findIn(ctx, m.Model, spec, true)
	if err != nil {
		return nil, err
	}
	return m.loaded(ctx, found)
}

// LoadAdaptersIn is LoadAdapters of a folder's adapters; the folder is reported as from. Shipped are those that come with the programs.
func (m *Model) LoadAdaptersIn(ctx context.Context, folder fs.FS, name, from string) (LoadedAdapters, error) {
	f := adapter{name: name, from: from, asked: from}
	if from == Shipped {
		found, err := f.shipped(ctx, m.Model)
		if err != nil {
			return nil, err
		}
		return m.loaded(ctx, found)
	}
	var found []adapter
	var err error
	if f.stored, err = checkpoints.ReadAdapterFS(folder, "."); err == nil {
		found = []adapter{f}
	} else if errors.Is(err, checkpoints.ErrNotAdapter) {
		r, none := checkpoints.ReadRegistry(folder)
		if errors.Is(none, fs.ErrNotExist) {
			return nil, err
		}
		if err = none; err == nil {
			found, err = f.listed(ctx, m.Model, r)
		}
	}
	if err != nil {
		return nil, err
	}
	return m.loaded(ctx, found)
}

// loaded are adapters with their weights, which policies need not take.
func (m *Model) loaded(ctx context.Context, found []adapter) (LoadedAdapters, error) {
	for i := range found {
		if err := found[i].loadAdapter(ctx, m.Model); err != nil {
			return nil, err
		}
		found[i].asked = ""
	}
	return found, nil
}

// AddAdapters gives the model adapters, all or none, while policies that were made before go on. ErrAdapterName if it has one of
// the kind and name.
func (m *Model) AddAdapters(loaded LoadedAdapters) error {
	before := m.adapters
	for _, a := range loaded {
		if err := m.addAdapter(a); err != nil {
			m.adapters = before
			return err
		}
	}
	return nil
}

// NameAdapters names adapters without a name by their folders, so that requests can tell them apart.
func (m *Model) NameAdapters() {
	for i := range m.adapters {
		a := &m.adapters[i]
		if a.name != "" {
			continue
		}
		name := AdapterName(a.from)
		for n := 2; m.hasAdapter(a.Kind(), name); n++ {
			name = fmt.Sprintf("%s-%d", AdapterName(a.from), n)
		}
		a.name = name
	}
}

// AdapterName is the name of an adapter that has none: its folder's, of letters, digits, dots, dashes and underscores.
func AdapterName(from string) string {
	name := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, path.Base(filepath.ToSlash(from)))
	if name = strings.Trim(name, ".-"); name == "" {
		return "adapter"
	}
	return name
}

// RemoveAdapters forgets the adapters of a name. Policies that were made with them go on.
func (m *Model) RemoveAdapters(name string) error {
	before := len(m.adapters)
	m.adapters = slices.DeleteFunc(slices.Clone(m.adapters), func(a adapter) bool { return a.name == name })
	if len(m.adapters) == before {
		return fmt.Errorf("adapter %q: %w", name, fs.ErrNotExist)
	}
	return nil
}
