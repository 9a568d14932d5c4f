// Package lineup opens a model with all that a comparison of policies needs: adapters, draft
// models, a pattern of retrieval heads and the options of policies, and makes the policies
// of them.
package lineup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/eviction"
	"glimpse/internal/modelfile"
	"glimpse/model"
	"glimpse/model/builtin"
	"glimpse/model/chat"
	"glimpse/model/hub"
)

// Shipped names the adapters that come with the programs, and the draft companion of the built-in model.
const Shipped = "shipped"

// Options say what is opened. The names are those of the flags of evict.
type Options struct {
	Model, Device string
	CacheDType    string // of keys and values: auto, float32 or bf16
	Adapters      []string
	// AdaptersByDefault tells that Adapters are a user's defaults, for any model: a registry among them that does not
	// know the model is passed over, and nothing need take them.
	AdaptersByDefault bool
	Drafts            []string
	Pattern           string
	Set               []string // policy.option=value
	Seed              uint64
	S3                objectstore.Settings
	ChatOptions       []string // variables of the chat template
	ChatDate          string   // that it is told

	// Before, where it is set, sees the model before its weights are loaded, when it is known which adapters there are
	// for it: CheckAdapters and DefaultPolicy work.
	Before func(l *Lineup) error
}

// draft is a model that writes drafts.
type draft struct {
	name  string
	model *model.Model
}

// Lineup is a model with adapters and policy options.
type Lineup struct {
	*model.Model
	// LeftOut says which of "all" policies could not take part, and why.
	LeftOut []string

	found     []found // adapters, before the weights are loaded
	adapters  []adapter
	drafts    []draft // none: the model itself
	pattern   *eviction.Pattern
	asked     Options // as the command line has it
	overrides eviction.Overrides
	set       eviction.Overrides // those of the command line
	seed      uint64
}

// Open loads the model, the adapters and the options; the options are checked
// before anything is read. log takes the progress of a download.
func (s *Options) Open(ctx context.Context, log io.Writer) (*Lineup, error) {
	set, err := eviction.ParseOverrides(s.Set)
	if err != nil {
		return nil, err
	}
	if err := model.CheckCacheDType(s.CacheDType); err != nil {
		return nil, err
	}
	chatOptions, err := chat.ParseOptions(s.ChatOptions, s.ChatDate)
	if err != nil {
		return nil, err
	}
	l := &Lineup{set: set, seed: s.Seed, asked: *s}
	var refused error // which says nothing of the model
	l.Model, err = hub.Open(ctx, s.Model, s.S3, log, model.Options{Device: s.Device, CacheDType: s.CacheDType, Chat: chatOptions, BeforeWeights: func(m *model.Model) error {
		l.Model = m
		if refused = l.look(ctx, s); refused != nil || s.Before == nil {
			return refused
		}
		return s.Before(l)
	}})
	if err = cmp.Or(refused, err); err != nil {
		return nil, err
	}
	if err := l.fill(ctx, s, log); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Close closes all models.
func (l *Lineup) Close() error {
	for _, d := range l.drafts {
		if d.model != l.Model {
			d.model.Close()
		}
	}
	return l.Model.Close()
}

// Companions identify the adapters and the draft models, by their names.
func (l *Lineup) Companions(ctx context.Context) (datasets.Contents, error) {
	var out datasets.Contents
	for _, a := range l.adapters {
		out.Put(strings.TrimSpace("adapter "+a.Kind()+" "+a.name), a.sha256)
	}
	for _, d := range l.drafts {
		sum, err := d.model.SHA256(ctx)
		if err != nil {
			return nil, err
		}
		out.Put("draft "+d.name, sum)
	}
	return out, nil
}

// policyDefaults is an optional file of a model folder: options of policies that
// suit this model, as {"snapkv": {"kernel": 3}}. Options given on the command line
// win.
const policyDefaults = "glimpse_policies.json"

// look reads what is known before the weights are loaded.
func (l *Lineup) look(ctx context.Context, s *Options) (err error) {
	if l.overrides, err = readDefaults(l.Folder()); err != nil {
		return fmt.Errorf("model %s: %w", l.Name, err)
	}
	for policy, options := range l.set {
		if l.overrides[policy] == nil {
			l.overrides[policy] = make(map[string]float64)
		}
		maps.Copy(l.overrides[policy], options)
	}
	l.found, err = s.find(ctx, l.Model)
	return err
}

func (l *Lineup) fill(ctx context.Context, s *Options, log io.Writer) error {
	if err := l.addPattern(s.Pattern); err != nil {
		return err
	}
	for _, spec := range s.Drafts {
		if err := l.addDraft(ctx, spec, s, log); err != nil {
			return err
		}
	}
	for _, f := range l.found {
		if err := l.addAdapter(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

func readDefaults(folder fs.FS) (eviction.Overrides, error) {
	raw, err := modelfile.ReadJSON(folder, policyDefaults, modelfile.Limit(policyDefaults))
	if errors.Is(err, fs.ErrNotExist) {
		return make(eviction.Overrides), nil
	}
	if err != nil {
		return nil, err
	}
	var values map[string]map[string]any // numbers, and names of choices
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", policyDefaults, err)
	}
	var assignments []string
	for policy, options := range values {
		for option, v := range options {
			assignments = append(assignments, fmt.Sprintf("%s.%s=%v", policy, option, v))
		}
	}
	overrides, err := eviction.ParseOverrides(assignments)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", policyDefaults, err)
	}
	return overrides, nil
}

// modelPattern is the folder of a model folder that may hold its pattern of
// retrieval heads.
const modelPattern = "duoattention"

// addPattern reads the pattern at path, or the model's own if there is one.
func (l *Lineup) addPattern(path string) error {
	var err error
	if path != "" {
		if l.pattern, err = eviction.ReadPattern(os.DirFS(path)); err != nil {
			return fmt.Errorf("--pattern %s: %w, want a folder that evict patterns has written", path, err)
		}
		return nil
	}
	if _, err := fs.Stat(l.Folder(), modelPattern); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	folder, err := fs.Sub(l.Folder(), modelPattern)
	if err == nil {
		l.pattern, err = eviction.ReadPattern(folder)
	}
	if err != nil {
		return fmt.Errorf("model %s: %s: %w", l.Name, modelPattern, err)
	}
	return nil
}

// addDraft opens a draft model.
func (l *Lineup) addDraft(ctx context.Context, spec string, s *Options, log io.Writer) error {
	name, dir, ok := strings.Cut(spec, "=")
	if !ok {
		name, dir = spec, spec
	}
	d := draft{name: name}
	layers, cut := strings.CutPrefix(dir, "layers:")
	var err error
	switch {
	case dir == "self":
		d.model = l.Model
	case cut:
		n, parseErr := strconv.Atoi(layers)
		if parseErr != nil {
			return fmt.Errorf("draft %q: got %q layers, want a number", spec, layers)
		}
		d.model, err = l.Cut(n)
	case dir == Shipped:
		if l.Name != builtin.Name {
			return fmt.Errorf("draft %q: only the built-in model has a shipped draft", spec)
		}
		d.model, err = model.OpenFS(builtin.Draft(), builtin.DraftName, model.Options{Device: s.Device, CacheDType: s.CacheDType})
	default:
		if !ok {
			d.name = filepath.Base(dir)
		}
		d.model, err = hub.Open(ctx, dir, s.S3, log, model.Options{Device: s.Device, CacheDType: s.CacheDType})
	}
	if err != nil {
		return fmt.Errorf("draft %q: %w", spec, err)
	}
	for _, other := range l.drafts {
		if other.name == d.name {
			if d.model != l.Model {
				d.model.Close()
			}
			return fmt.Errorf("two drafts named %q; name them, as NAME=DIR", d.name)
		}
	}
	l.drafts = append(l.drafts, d)
	return nil
}
