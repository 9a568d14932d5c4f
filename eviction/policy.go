package eviction

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"glimpse/internal/registry"
	"glimpse/internal/suggest"
	"glimpse/model"
)

// Policies lists all policies by name.
var Policies = registry.Registry[Policy]{Noun: "policy"}

// Policy is a registered way to evict.
type Policy struct {
	Kind    string // when it evicts: "none", "prefill", "prefill + decode"
	Doc     string // one line: the rule
	Source  string // paper, with section or equation
	Adapter string // kind of the adapter that it needs, or ""
	// Scorer: its prompt scores can be used with other allocations ("adakv", "compose").
	Scorer bool
	// Scores names the option whose value is the policy that scores for this one, and
	// whose adapter this one needs, beside its own if it has one; "" for policies that score by themselves.
	Scores string
	// Draft and Pattern: it takes a draft model, it needs a pattern of retrieval heads.
	Draft, Pattern bool

	Options []Option
	// New resolves the options. Resources.Adapter is nil unless Adapter is set.
	New func(s Settings) (Method, error)
}

// Option is a parameter of a policy.
type Option struct {
	Name    string
	Default float64
	Min     float64
	Max     float64
	Whole   bool // only whole numbers
	Odd     bool // only odd ones
	// Choices, where it is set, lists the names that the option takes; its values are
	// their indices. A function, because a choice among policies is known only once all
	// are registered.
	Choices func() []string
	// Choice is the default among Choices; "" is the first.
	Choice string
	Doc    string
}

// windowsOption is every policy's: what it does in layers with a sliding window, which without it hold their window
// whatever the policy, and do not count in what the budget is shared out over.
var windowsOption = Option{Name: "windows", Choices: choices("leave", "evict"), Doc: "layers with a sliding window hold that and are left alone; or they hold the prompt and are evicted as others are"}

// choices is a fixed list of Choices.
func choices(names ...string) func() []string { return func() []string { return names } }

// Start is the value of the option where none is given.
func (o Option) Start() float64 {
	if o.Choices == nil || o.Choice == "" {
		return o.Default
	}
	return float64(slices.Index(o.Choices(), o.Choice))
}

// FormatValue writes a value as in a flag.
func (o Option) FormatValue(v float64) string {
	if o.Choices != nil {
		return o.Choices()[int(v)]
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// Range is what values the option takes.
func (o Option) Range() string {
	number := "a number"
	switch {
	case o.Choices != nil:
		return "one of: " + strings.Join(o.Choices(), ", ")
	case o.Odd:
		number = "an odd number"
	case o.Whole:
		number = "a whole number"
	}
	return fmt.Sprintf("%s from %s to %s", number, o.FormatValue(o.Min), o.FormatValue(o.Max))
}

// MarshalJSON writes the range of a number, or the names of a choice.
func (o Option) MarshalJSON() ([]byte, error) {
	if o.Choices != nil {
		return json.Marshal(struct {
			Name    string   `json:"name"`
			Default string   `json:"default"`
			Choices []string `json:"choices"`
			Doc     string   `json:"doc"`
		}{o.Name, o.FormatValue(o.Start()), o.Choices(), o.Doc})
	}
	return json.Marshal(struct {
		Name    string  `json:"name"`
		Default float64 `json:"default"`
		Min     float64 `json:"min"`
		Max     float64 `json:"max"`
		Whole   bool    `json:"whole"`
		Odd     bool    `json:"odd"`
		Doc     string  `json:"doc"`
	}{o.Name, o.Default, o.Min, o.Max, o.Whole, o.Odd, o.Doc})
}

// checkRange refuses values out of range.
func (o Option) checkRange(text string) (float64, error) {
	if o.Choices != nil {
		i := slices.Index(o.Choices(), text)
		if i < 0 {
			return 0, fmt.Errorf("got %q, want %s%s", text, o.Range(), suggest.DidYouMean(text, o.Choices()))
		}
		return float64(i), nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		v = math.NaN()
	}
	return v, o.checkNumber(v, text)
}

// checkNumber refuses numbers out of range; text is what the user wrote.
func (o Option) checkNumber(v float64, text string) error {
	if !(v >= o.Min && v <= o.Max) || o.Whole && v != math.Trunc(v) || o.Odd && math.Mod(v, 2) != 1 {
		return fmt.Errorf("got %q, want %s", text, o.Range())
	}
	return nil
}

// checkValue refuses values that no flag can have.
func (o Option) checkValue(v float64) error {
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if o.Choices == nil {
		return o.checkNumber(v, text)
	}
	if v != math.Trunc(v) || v < 0 || v >= float64(len(o.Choices())) {
		return fmt.Errorf("got %q, want %s", text, o.Range())
	}
	return nil
}

// Resources are what policies need besides numbers. Each is nil where a policy
// does not take it.
type Resources struct {
	Adapter model.Adapter
	// Scorer is the adapter of the policy that scores for one which has an adapter of its own.
	Scorer model.Adapter
	// Draft writes the draft of a policy that takes one; nil is the model itself.
	Draft *model.Model
	// Pattern tells retrieval heads from streaming heads.
	Pattern *Pattern
	// HeadBudgets are the model's, which policies with the option head-budgets=learned share out by; any takes them.
	HeadBudgets *HeadBudgets
}

// Settings are the values of a policy's options, defaults filled in, and what
// every policy gets.
type Settings struct {
	Seed      uint64 // of policies that draw
	Resources Resources
	values    map[string]float64
	options   []Option
	overrides Overrides // of all policies: those that score for another have their own
}

// Int and Float read an option by name.
func (s Settings) Int(name string) int       { return int(s.values[name]) }
func (s Settings) Float(name string) float64 { return s.values[name] }

// OptionText reads an option by name as it would be written in a flag: the name of a
// choice.
func (s Settings) OptionText(name string) string {
	i := slices.IndexFunc(s.options, func(o Option) bool { return o.Name == name })
	return s.options[i].FormatValue(s.values[name])
}

// adapterOf is the policy's adapter as what the policy runs: rows, or gates.
func adapterOf[A model.Adapter](s Settings) (A, error) {
	a, ok := s.Resources.Adapter.(A)
	if !ok {
		return a, fmt.Errorf("adapter of kind %q: got %T, want a %v", s.Resources.Adapter.Kind(), s.Resources.Adapter, reflect.TypeFor[A]())
	}
	return a, nil
}

// Values are all options with their values.
func (s Settings) Values() map[string]float64 { return maps.Clone(s.values) }

// Overrides are option values by policy and option, as given by flags of the
// form policy.option=value.
type Overrides map[string]map[string]float64

// ParseOverrides reads assignments policy.option=value. An unknown policy or
// option is an error that lists the valid names; so is a value out of range.
func ParseOverrides(assignments []string) (Overrides, error) {
	out := make(Overrides)
	for _, a := range assignments {
		key, value, ok := strings.Cut(a, "=")
		name, option, ok2 := strings.Cut(key, ".")
		if !ok || !ok2 {
			return nil, fmt.Errorf("set %q: want policy.option=value", a)
		}
		p, err := Policies.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("set %q: %w", a, err)
		}
		o, err := p.option(name, option)
		if err != nil {
			return nil, fmt.Errorf("set %q: %w", a, err)
		}
		v, err := o.checkRange(value)
		if err != nil {
			return nil, fmt.Errorf("set %q: %w", a, err)
		}
		if out[name] == nil {
			out[name] = make(map[string]float64)
		}
		out[name][option] = v
	}
	return out, nil
}

// option finds an option of the policy of that name.
func (p Policy) option(policy, name string) (Option, error) {
	for _, o := range []Option{windowsOption, headsOption, refitOption} {
		if name == o.Name {
			return o, nil
		}
	}
	i := slices.IndexFunc(p.Options, func(o Option) bool { return o.Name == name })
	if i < 0 {
		var names []string
		for _, o := range p.Options {
			names = append(names, o.Name)
		}
		want := "it has none"
		if len(names) > 0 {
			want = "want one of: " + strings.Join(names, ", ")
		}
		return Option{}, fmt.Errorf("policy %s has no option %q, %s%s", policy, name, want, suggest.DidYouMean(name, names))
	}
	return p.Options[i], nil
}

// resolveOptions are the values of all options. Overrides need not come from flags, so they are
// checked here, too.
func (p Policy) resolveOptions(name string, overrides Overrides) (map[string]float64, error) {
	values := make(map[string]float64)
	for _, o := range p.Options {
		values[o.Name] = o.Start()
	}
	for _, option := range slices.Sorted(maps.Keys(overrides[name])) {
		v := overrides[name][option]
		o, err := p.option(name, option)
		if err != nil {
			return nil, err
		}
		if err := o.checkValue(v); err != nil {
			return nil, fmt.Errorf("policy %s: option %s: %w", name, option, err)
		}
		values[option] = v
	}
	return values, nil
}

// Configured is a policy made ready: its method and what it is called in reports.
type Configured struct {
	Name     string
	Policy   Policy
	Settings Settings
	Method   Method
	Second   Method // of a composition, see [TwoStage]; else nil
}

// New is NewWith for policies that take no resources but an adapter.
func New(name string, seed uint64, overrides Overrides, adapter model.Adapter) (*Configured, error) {
	return NewWith(name, seed, overrides, Resources{Adapter: adapter})
}

// NewWith makes the named policy with its default options, the overrides and the
// resources, or the composition "first:second" of two. A resource that the policy does not take is an error, and so is one
// that it needs and is missing. Whether resources fit a model is for [Configured.Fits]
// to tell.
func NewWith(name string, seed uint64, overrides Overrides, r Resources) (*Configured, error) {
	if strings.Contains(name, ":") {
		return newTwoStage(name, seed, overrides, r)
	}
	p, err := Policies.Lookup(name)
	if err != nil {
		return nil, err
	}
	needs, err := NeedsOf(name, overrides)
	if err != nil {
		return nil, err
	}
	switch {
	case needs.Adapter == "" && r.Adapter != nil:
		return nil, fmt.Errorf("policy %s: takes no adapter, got one of kind %q", name, r.Adapter.Kind())
	case needs.Adapter != "" && r.Adapter == nil:
		return nil, fmt.Errorf("policy %s: needs an adapter of kind %q, got none", name, needs.Adapter)
	case needs.Adapter != "" && model.PolicyOf(r.Adapter.Kind()) != needs.Adapter:
		return nil, fmt.Errorf("policy %s: adapter of kind %q, want %q", name, r.Adapter.Kind(), needs.Adapter)
	case needs.ScorerAdapter == "" && r.Scorer != nil:
		return nil, fmt.Errorf("policy %s: takes no adapter that scores, got one of kind %q", name, r.Scorer.Kind())
	case needs.ScorerAdapter != "" && (r.Scorer == nil || model.PolicyOf(r.Scorer.Kind()) != needs.ScorerAdapter):
		return nil, fmt.Errorf("policy %s: needs an adapter of kind %q that scores, got %s", name, needs.ScorerAdapter, kindOf(r.Scorer))
	case !needs.Draft && r.Draft != nil:
		return nil, fmt.Errorf("policy %s: takes no draft model, got %s", name, r.Draft.Name)
	case !needs.Pattern && r.Pattern != nil:
		return nil, fmt.Errorf("policy %s: takes no pattern of retrieval heads, got one", name)
	case needs.Pattern && r.Pattern == nil:
		return nil, fmt.Errorf("policy %s: needs a pattern of retrieval heads, got none", name)
	}
	values, err := p.resolveOptions(name, overrides)
	if err != nil {
		return nil, err
	}
	s := Settings{seed, r, values, p.Options, overrides}
	m, err := p.New(s)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	heads := s.Int(headsOption.Name)
	if err := checkHeads(name, m, heads, r.HeadBudgets); err != nil {
		return nil, err
	}
	m = withHeads(m, heads, r.HeadBudgets)
	refit := s.Int(refitOption.Name)
	if err := checkRefit(name, m, refit); err != nil {
		return nil, err
	}
	return &Configured{Name: name, Policy: p, Settings: s, Method: withRefit(m, refit)}, nil
}

// Needs are the resources that a policy takes under given options.
type Needs struct {
	Scorer         string // policy whose options the scores are made with: itself or another
	Adapter        string // kind, or ""
	ScorerAdapter  string // kind of the scorer's, where both have one; else ""
	Draft, Pattern bool
}

// kindOf names an adapter's kind in errors.
func kindOf(a model.Adapter) string {
	if a == nil {
		return "none"
	}
	return fmt.Sprintf("kind %q", a.Kind())
}

// NeedsOf tells what the named policy takes: its own needs and the needs of the policy
// that scores for it, or of a composition's first stage.
func NeedsOf(name string, overrides Overrides) (Needs, error) {
	name, _, _ = strings.Cut(name, ":")
	p, err := Policies.Lookup(name)
	if err != nil {
		return Needs{}, err
	}
	own := Needs{Scorer: name, Adapter: p.Adapter, Draft: p.Draft, Pattern: p.Pattern}
	if p.Scores == "" {
		return own, nil
	}
	values, err := p.resolveOptions(name, overrides)
	if err != nil {
		return Needs{}, err
	}
	scorer := Settings{values: values, options: p.Options}.OptionText(p.Scores)
	if scorer == name {
		return own, nil
	}
	needs, err := NeedsOf(scorer, overrides)
	if p.Adapter != "" {
		needs.Adapter, needs.ScorerAdapter = p.Adapter, needs.Adapter
	}
	return needs, err
}

// Fits checks the policy's resources against a model: before anything runs. The ids that a draft
// model writes must mean the same to it.
func (n *Configured) Fits(m *model.Model) error {
	r := n.Settings.Resources
	if m.Config.VariesKV() && n.evictsWindows() {
		return fmt.Errorf("policy %s: %s: layers of %s have KV heads of different widths, want windows to be left alone", n.Name, windowsOption.Name, m.Name)
	}
	if err := n.fitsRefit(m); err != nil {
		return err
	}
	if r.Draft != nil && r.Draft != m {
		if err := m.SameVocabulary(r.Draft); err != nil {
			return fmt.Errorf("policy %s: draft model %s: %w", n.Name, r.Draft.Name, err)
		}
	}
	if r.Pattern != nil {
		if err := r.Pattern.checkModel(m); err != nil {
			return fmt.Errorf("policy %s: %w", n.Name, err)
		}
	}
	if n.HeadSharing() == LearnedHeads {
		if err := r.HeadBudgets.Check(m, n.evictsWindows()); err != nil {
			return fmt.Errorf("policy %s: %w", n.Name, err)
		}
	}
	return nil
}

// plan is what the policy wants of a prompt, which it sees with what its budget leaves beside the tokens that stay. Those among the plan's
// first and last entries cost nothing more, unless layers or heads have budgets of their own.
func (n *Configured) plan(p Prompt) (Prompt, Plan) {
	end := p.From + len(p.Tokens)
	stays := p.Keep.Tokens(end)
	if stays == 0 || p.fits() {
		return n.stage(p)
	}
	whole := p.Budget
	leave := func(stays int) Prompt {
		p.beside = min(stays, whole-1)
		p.Budget = whole - p.beside
		return p
	}
	own, plan := n.stage(leave(stays))
	if plan.Layers != nil || plan.CrossLayer != nil || plan.Heads != nil || plan.Global || plan.Select != nil {
		return own, plan
	}
	return n.stage(leave(p.Keep.between(plan.Sink, end-plan.Recent)))
}

// stage is what the policy wants of a prompt: of a composition the first stage, which sees its
// part of the budget, and what the second reads of the rest.
func (n *Configured) stage(p Prompt) (Prompt, Plan) {
	if n.Second == nil {
		return p, n.Method.Plan(p)
	}
	second := n.Second.Plan(p)
	_, p.Budget = splitPrompt(p, adaptiveSplit)
	plan := n.Method.Plan(p)
	plan.Sparse = second.Sparse
	return p, plan
}

// evictsWindows tells that the policy evicts in layers with a sliding window, too.
func (n *Configured) evictsWindows() bool { return n.Settings.Int(windowsOption.Name) > 0 }

// smallest is the plan of a prompt that does not fit its budget.
func (n *Configured) smallest() Plan {
	_, plan := n.plan(tinyPrompt())
	return plan
}

// tinyPrompt does not fit its budget.
func tinyPrompt() Prompt {
	c := &model.Config{Layers: 1, Heads: 1, KVHeads: 1, HeadDim: 1, Vocab: 1}
	return Prompt{Tokens: []int32{0, 0}, Entries: 2, Budget: 1, Config: c}
}

// decodes tells whether the policy evicts while decoding, and whether it reads only a part of
// the cache.
func (n *Configured) decodes() (evicts, sparse bool) {
	plan := n.smallest()
	return plan.Decode != nil, plan.Sparse != nil
}

// keepsTurns tells that the policy drops nothing of a conversation and decides anew with every turn what is
// read of it.
func (n *Configured) keepsTurns() bool { return n.smallest().KeepsAll }

// MaxBudget bounds budgets, so that sums of them over the heads and layers of a model are numbers, too.
const MaxBudget = math.MaxInt32

// CheckBudget refuses a budget that no cache can be cut to.
func CheckBudget(budget int) error {
	switch {
	case budget < 1:
		return fmt.Errorf("budget: got %d, want at least 1 entry per KV head", budget)
	case budget > MaxBudget:
		return fmt.Errorf("budget: got %d, want at most %d entries per KV head, more than any prompt has tokens", budget, MaxBudget)
	}
	return nil
}
