package checkpoints

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode"
)

// RegistryFile is the file of a folder that lists adapters below it by the weights of their models.
const RegistryFile = "registry.json"

const (
	registryFormat  = "glimpse-registry"
	registryVersion = 1
	// MaxRegistry bounds registry.json, in bytes.
	MaxRegistry = 16 << 20
	// maxLayers is deeper than any model.
	maxLayers = 1 << 16
)

// Registry lists adapters by the weights of their models. The zero value lists none.
type Registry struct {
	Models []RegisteredModel // every hash once
	folder fs.FS             // nil unless ReadRegistry read it
}

// RegisteredModel is a model that has adapters.
type RegisteredModel struct {
	Name   string `json:"name"`   // for people
	SHA256 string `json:"sha256"` // of the weights, see BaseModel
	// HiddenSize and Layers exclude other models before their weights are hashed: the model has this hidden size,
	// and at least so many layers, as far as its adapters tell.
	HiddenSize int                 `json:"hidden_size"`
	Layers     int                 `json:"layers"`
	Adapters   []RegisteredAdapter `json:"adapters"` // one of a kind
}

// RegisteredAdapter is where an adapter lies.
type RegisteredAdapter struct {
	Kind   string `json:"kind"`
	Path   string `json:"path"`   // of its folder, from that of the registry, with slashes; never out of it
	SHA256 string `json:"sha256"` // see Adapter.SHA256
}

// registryDocument is registry.json.
type registryDocument struct {
	Format  string            `json:"format"`
	Version int               `json:"version"`
	Models  []RegisteredModel `json:"models"`
}

// ReadRegistry reads the registry of a folder, which ReadAdapters uses later. fs.ErrNotExist if there is none, ErrVersion if it is of another
// format version, ErrCorrupt if it is malformed.
func ReadRegistry(folder fs.FS) (*Registry, error) {
	data, err := readBounded(folder, RegistryFile, MaxRegistry)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", RegistryFile, noPath(err))
	}
	r, err := ParseRegistry(data)
	if err != nil {
		return nil, err
	}
	r.folder = folder
	return r, nil
}

// ParseRegistry reads the content of a registry.json. Errors are as ReadRegistry's.
func ParseRegistry(data []byte) (*Registry, error) {
	var d registryDocument
	err := decodeVersioned(data, registryFormat, registryVersion, &d)
	r := &Registry{Models: d.Models}
	if err == nil {
		if err = r.validateEntries(); err != nil {
			err = Corruptf("%v", err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", RegistryFile, err)
	}
	return r, nil
}

// Encode renders registry.json. The same entries always give the same bytes.
func (r *Registry) Encode() ([]byte, error) {
	if err := r.validateEntries(); err != nil {
		return nil, fmt.Errorf("encode %s: %w", RegistryFile, err)
	}
	models := append([]RegisteredModel{}, r.Models...) // an empty list rather than null
	slices.SortFunc(models, func(a, b RegisteredModel) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.SHA256, b.SHA256))
	})
	return encodeJSON(registryDocument{registryFormat, registryVersion, models}, "  ")
}

// Add lists an adapter that lies at path, in the place of the one of its kind that its model had and of any that lay
// at path.
func (r *Registry) Add(a *Adapter, path string) error {
	layers := 0
	for key := range a.LoRA {
		layers = max(layers, key.Layer+1)
	}
	m := RegisteredModel{SHA256: a.Base.SHA256}
	var models []RegisteredModel
	for _, other := range r.Models {
		other.Adapters = slices.DeleteFunc(slices.Clone(other.Adapters), func(x RegisteredAdapter) bool { return x.Path == path })
		if other.SHA256 == m.SHA256 {
			m = other
		} else if len(other.Adapters) > 0 {
			models = append(models, other)
		}
	}
	m.Name, m.HiddenSize, m.Layers = a.Base.Name, a.Embeddings.Cols, max(m.Layers, layers)
	m.Adapters = append(slices.DeleteFunc(m.Adapters, func(x RegisteredAdapter) bool { return x.Kind == a.Kind }),
		RegisteredAdapter{a.Kind, path, a.SHA256()})
	slices.SortFunc(m.Adapters, func(a, b RegisteredAdapter) int { return cmp.Compare(a.Kind, b.Kind) })
	next := Registry{append(models, m), r.folder}
	if err := next.validateEntries(); err != nil {
		return err
	}
	*r = next
	return nil
}

// Fits tells that a model of this shape may be this one.
func (m *RegisteredModel) Fits(hiddenSize, layers int) bool {
	return m.HiddenSize == hiddenSize && m.Layers <= layers
}

// ReadAdapters reads the adapters of a model from the registry's folder. One that is not what was registered is
// ErrCorrupt.
func (r *Registry) ReadAdapters(m *RegisteredModel) (all []*Adapter, err error) {
	for _, entry := range m.Adapters {
		a, err := ReadAdapterFS(r.folder, entry.Path)
		if err != nil {
			return nil, err
		}
		for _, c := range [][3]string{{"kind", a.Kind, entry.Kind}, {"sha256 of the base model", a.Base.SHA256, m.SHA256}, {"sha256", a.SHA256(), entry.SHA256}} {
			if c[1] != c[2] {
				return nil, Corruptf("%s: adapter %s: %s: got %s, want %s: it has changed since it was registered; train export --registry does it again", RegistryFile, entry.Path, c[0], c[1], c[2])
			}
		}
		all = append(all, a)
	}
	return all, nil
}

// ListModels names the models for an error message.
func (r *Registry) ListModels() string {
	names := make([]string, len(r.Models))
	for i, m := range r.Models {
		names[i] = m.Name
	}
	if len(names) == 0 {
		return "none"
	}
	return listNames(names)
}

// validateEntries checks that every model and every adapter is complete, and there once.
func (r *Registry) validateEntries() error {
	hashes, paths := make(map[string]bool), make(map[string]bool)
	for i, m := range r.Models {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("models[%d] %.100q: %s", i, m.Name, fmt.Sprintf(format, args...))
		}
		switch {
		case m.Name == "":
			return fail("name is empty")
		case !isSHA256(m.SHA256):
			return fail("sha256: got %.100q, want 64 lower-case hexadecimal digits", m.SHA256)
		case hashes[m.SHA256]:
			return fail("sha256: %s is of two models", m.SHA256)
		case m.HiddenSize < 1 || m.HiddenSize > maxHidden:
			return fail("hidden_size: got %d, want 1 to %d", m.HiddenSize, maxHidden)
		case m.Layers < 0 || m.Layers > maxLayers:
			return fail("layers: got %d, want 0 to %d", m.Layers, maxLayers)
		case len(m.Adapters) == 0:
			return fail("got no adapters, want at least one")
		}
		hashes[m.SHA256] = true
		kinds := make(map[string]bool)
		for _, a := range m.Adapters {
			switch {
			case !identifier(a.Kind):
				return fail("adapter: kind: got %.100q, want a name of lower-case letters, digits and dashes", a.Kind)
			case kinds[a.Kind]:
				return fail("two adapters of kind %q", a.Kind)
			case !fs.ValidPath(a.Path) || a.Path == "." || strings.ContainsFunc(a.Path, func(c rune) bool { return c == '\\' || c == ':' || !unicode.IsPrint(c) }):
				return fail("adapter %s: path: got %.200q, want one below the registry's folder, with slashes", a.Kind, a.Path)
			case paths[a.Path]:
				return fail("adapter %s: path: %.200q is of two adapters", a.Kind, a.Path)
			case !isSHA256(a.SHA256):
				return fail("adapter %s: sha256: got %.100q, want 64 lower-case hexadecimal digits", a.Kind, a.SHA256)
			}
			kinds[a.Kind], paths[a.Path] = true, true
		}
	}
	return nil
}
