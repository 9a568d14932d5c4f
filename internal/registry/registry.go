// Package registry holds the named extension points: policies, families,
// adapter kinds, tasks and backends register themselves here from the one file
// that implements them, and flags, help texts and conformance tests iterate it.
package registry

import (
	"iter"
	"maps"
	"slices"

	"glimpse/internal/suggest"
)

// Registry maps names to entries of one extension point. The zero value with
// Noun set is ready to use. It is filled from init functions and only read
// afterwards, so it needs no lock.
type Registry[T any] struct {
	Noun    string // what an entry is, for error messages: "policy"
	entries map[string]T
}

// Add registers an entry. It panics on an empty or duplicate name, which only a
// programming error can cause.
func (r *Registry[T]) Add(name string, entry T) {
	if name == "" {
		panic("registry: empty " + r.Noun + " name")
	}
	if _, ok := r.entries[name]; ok {
		panic("registry: duplicate " + r.Noun + " " + name)
	}
	if r.entries == nil {
		r.entries = make(map[string]T)
	}
	r.entries[name] = entry
}

// Lookup returns the named entry; the error lists the valid names and
// says which one was likely meant.
func (r *Registry[T]) Lookup(name string) (T, error) {
	if e, ok := r.entries[name]; ok {
		return e, nil
	}
	var zero T
	return zero, suggest.Unknown(r.Noun, name, r.Names())
}

// Names returns all names, sorted.
func (r *Registry[T]) Names() []string { return slices.Sorted(maps.Keys(r.entries)) }

// All are the entries in the order of their names.
func (r *Registry[T]) All() iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for _, name := range r.Names() {
			if !yield(name, r.entries[name]) {
				return
			}
		}
	}
}
