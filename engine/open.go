package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"glimpse/adapters"
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
const Shipped = adapters.Shipped

// Options say what is opened. The names are as the flags of evict.
type Options struct {
	Model, Device string
	CacheDType    string // of keys and values: auto, float32 or bf16
	Exact         bool   // float32 throughout
	// Policies is the list that is wanted, with commas between; "": it is not known yet. With PolicyByDefault
	// Open puts the policy of the adapter that there is in its place.
	Policies        string
	PolicyByDefault bool
	Adapters        []string
	// AdaptersByDefault tells that Adapters are a user's defaults, for any model: a registry among them that does not
	// know the model is passed over, and nothing need take them.
	AdaptersByDefault bool
	Drafts            []string
	Pattern           string
	// Heads is how the KV heads of all layers share a budget, of policies that leave it open: equal ("" too), layer, global, Shipped
	// for the budgets that were learned for the model, or the file of such.
	Heads string
	// HeadsByDefault tells that Heads are the budgets that come with this program for the model, if there are some and the policy leaves
	// open how its heads share a budget.
	HeadsByDefault bool
	Set            []string // policy.option=value
	Seed           uint64
	S3             objectstore.Settings
	ChatOptions    []string // variables of the chat template
	ChatDate       string   // that it is told
	ChatTemplate   string   // in the place of the model's, see chat.ReadSource

	// Before, where it is set, sees the model before its weights are loaded, when it is known that the policies have
	// their adapters.
	Before func(m *Model) error
}

// draft is a model that writes drafts.
type draft struct {
	name  string
	model *model.Model
}

// Model is a model with adapters, drafts and options of policies.
type Model struct {
	*model.Model
	asked     *Options
	adapters  []adapter
	drafts    []draft // none: the model itself
	pattern   *eviction.Pattern
	heads     func() (adapters.Heads, error) // see learnedHeads
	headsUsed atomic.Bool                    // a policy has wanted them
	overrides eviction.Overrides
	set       eviction.Overrides // as the options set them
}

// fillByName fills in what the name of the model stands for beside its weights, where nothing else is given: an adapter, as
// a default, and how heads share a budget.
func (o *Options) fillByName() error {
	entry, err := hub.Named(o.Model)
	if err != nil || entry == nil {
		return err
	}
	if entry.Adapter != "" && len(o.Adapters) == 0 {
		o.Adapters, o.AdaptersByDefault = []string{entry.Adapter}, true
	}
	if entry.Heads != "" && o.Heads == "" {
		o.Heads = entry.Heads
	}
	return nil
}

// OpenModel opens the model alone. before, where it is set, sees it before its weights are loaded. log takes the
// progress of a download.
func (o *Options) OpenModel(ctx context.Context, log io.Writer, before func(m *model.Model) error) (*model.Model, error) {
	if err := errors.Join(o.fillByName(), model.CheckCacheDType(o.CacheDType), model.CheckExact(o.Exact, o.CacheDType)); err != nil {
		return nil, err
	}
	chatOptions, err := chat.ParseOptions(o.ChatOptions, o.ChatDate)
	if err != nil {
		return nil, err
	}
	template, err := chat.ReadSource(o.ChatTemplate)
	if err != nil {
		return nil, fmt.Errorf("--chat-template: %w", err)
	}
	m, err := hub.Open(ctx, o.Model, o.S3, log, model.Options{Device: o.Device, CacheDType: o.CacheDType, Exact: o.Exact, Chat: chatOptions, Template: template, BeforeWeights: before})
	if err == nil {
		m.WarnOfRoundedKeys(log)
	}
	return m, err
}

// Open opens the model, the adapters and the drafts; the options are checked before anything is read.
func Open(ctx context.Context, o *Options, log io.Writer) (*Model, error) {
	set, err := eviction.ParseOverrides(o.Set)
	if err != nil {
		return nil, err
	}
	m := &Model{set: set, asked: o}
	var refused error // which says nothing of the model
	m.Model, err = o.OpenModel(ctx, log, func(of *model.Model) error {
		m.Model = of
		refused = m.readShapes(ctx)
		return refused
	})
	if err = cmp.Or(refused, err); err != nil {
		return nil, err
	}
	if err := m.loadCompanions(ctx, log); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Close closes all models.
func (m *Model) Close() error {
	for _, d := range m.drafts {
		if d.model != m.Model {
			d.model.Close()
		}
	}
	return m.Model.Close()
}

// HeadsCompanion is what Companions call budgets of heads.
const HeadsCompanion = "budgets of heads"

// Companions identify the adapters, the draft models, budgets of heads and a chat template that was given, by their names.
func (m *Model) Companions(ctx context.Context) (datasets.Contents, error) {
	var out datasets.Contents
	if from, sum := m.GivenTemplate(); from != "" {
		out.Put("chat template "+from, sum)
	}
	for _, a := range m.adapters {
		out.Put(strings.TrimSpace("adapter "+a.Kind()+" "+a.name), a.stored.SHA256())
	}
	if m.headsUsed.Load() {
		b, err := m.heads()
		if err != nil {
			return nil, err
		}
		out.Put(HeadsCompanion, b.FileSHA256)
	}
	for _, d := range m.drafts {
		sum, err := d.model.SHA256(ctx)
		if err != nil {
			return nil, err
		}
		out.Put("draft "+d.name, sum)
	}
	return out, nil
}

// readShapes reads what is known before the weights are loaded.
func (m *Model) readShapes(ctx context.Context) error {
	own, err := readDefaults(m.Folder())
	if err != nil {
		return fmt.Errorf("model %s: %w", m.Name, err)
	}
	m.overrides = merged(own, m.set)
	if m.adapters, err = m.asked.findAdapters(ctx, m.Model); err != nil {
		return err
	}
	if m.asked.PolicyByDefault {
		m.asked.Policies, _ = m.DefaultPolicy()
	}
	if m.asked.Policies != "" {
		if err := m.checkAdapters(m.asked.Policies); err != nil {
			return err
		}
	}
	if m.asked.Before != nil {
		return m.asked.Before(m)
	}
	return nil
}

// loadCompanions loads what comes with the model.
func (m *Model) loadCompanions(ctx context.Context, log io.Writer) error {
	if c := &m.Config; log != nil && c.WindowsAlone() {
		fmt.Fprintln(log, "every layer of the model has a sliding window, which it holds alone: policies evict nothing there unless they are told (--set POLICY.windows=evict)")
	}
	if err := m.addPattern(m.asked.Pattern); err != nil {
		return err
	}
	m.heads = sync.OnceValues(m.readHeads)
	if err := m.checkHeads(); err != nil {
		return err
	}
	for _, spec := range m.asked.Drafts {
		if err := m.addDraft(ctx, spec, log); err != nil {
			return err
		}
	}
	return m.loadAdapters(ctx, log)
}

// policyDefaults is an optional file of a model folder: options of policies that
// suit this model, as {"snapkv": {"kernel": 3}}. Options given on the command line
// win.
const policyDefaults = "glimpse_policies.json"

func readDefaults(folder fs.FS) (eviction.Overrides, error) {
	raw, err := modelfile.ReadJSON(folder, policyDefaults, modelfile.Limit(policyDefaults))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
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
func (m *Model) addPattern(path string) error {
	var err error
	if path != "" {
		if m.pattern, err = eviction.ReadPattern(os.DirFS(path)); err != nil {
			return fmt.Errorf("--pattern %s: %w, want a folder that evict patterns has written", path, err)
		}
		return nil
	}
	if _, err := fs.Stat(m.Folder(), modelPattern); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	folder, err := fs.Sub(m.Folder(), modelPattern)
	if err == nil {
		m.pattern, err = eviction.ReadPattern(folder)
	}
	if err != nil {
		return fmt.Errorf("model %s: %s: %w", m.Name, modelPattern, err)
	}
	return nil
}

// OpenDraft opens a draft model of m: m itself for "self", its first N layers for "layers:N", the one that ships
// with the built-in model for Shipped, or else what a model is opened by.
func OpenDraft(ctx context.Context, m *model.Model, spec string, s3 objectstore.Settings, opt model.Options, log io.Writer) (*model.Model, error) {
	layers, cut := strings.CutPrefix(spec, "layers:")
	switch {
	case spec == "self":
		return m, nil
	case cut:
		n, err := strconv.Atoi(layers)
		if err != nil {
			return nil, fmt.Errorf("got %q layers, want a number", layers)
		}
		return m.Cut(n)
	case spec == Shipped && m.Name != builtin.Name:
		return nil, errors.New("only the built-in model has a shipped draft")
	case spec == Shipped:
		return model.OpenFS(builtin.Draft(), builtin.DraftName, opt)
	}
	return hub.Open(ctx, spec, s3, log, opt)
}

// addDraft opens a draft model.
func (m *Model) addDraft(ctx context.Context, spec string, log io.Writer) error {
	name, dir, ok := strings.Cut(spec, "=")
	if !ok {
		name, dir = filepath.Base(spec), spec
	}
	d, opt := draft{name: name}, model.Options{Device: m.asked.Device, CacheDType: m.asked.CacheDType, Exact: m.asked.Exact}
	var err error
	if d.model, err = OpenDraft(ctx, m.Model, dir, m.asked.S3, opt, log); err != nil {
		return fmt.Errorf("draft %q: %w", spec, err)
	}
	for _, other := range m.drafts {
		if other.name == d.name {
			if d.model != m.Model {
				d.model.Close()
			}
			return fmt.Errorf("two drafts named %q; name them, as NAME=DIR", d.name)
		}
	}
	m.drafts = append(m.drafts, d)
	return nil
}
