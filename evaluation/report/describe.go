package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/evaluation/runs"
	"glimpse/eviction"
	"glimpse/internal/commands"
	"glimpse/internal/listing"
)

// describeRuns says what was measured, with what, and how it is repeated.
func (r *Report) describeRuns(stored []*runs.Stored, joined *runs.Joined, rows []evaluation.Row) {
	samples, failed := countSamples(joined.Predictions)
	budgets := listing.Map(r.budgets(), eviction.Budget.String)
	policies := r.labels()
	r.Title = cmp.Or(r.Title, "KV-cache eviction: "+strings.Join(joined.Models, ", "))
	r.Facts = []Fact{
		{"models", strings.Join(joined.Models, ", ")},
		{"tasks", fmt.Sprint(len(joined.Tasks))},
		{"samples", fmt.Sprint(samples)},
		{"policies", fmt.Sprint(len(policies))},
		{"budgets", strings.Join(budgets, ", ") + " KV entries per KV head and layer"},
	}
	if len(budgets) == 0 {
		r.Facts[4].Value = "none: the full cache alone"
	}
	if failed > 0 {
		r.Notices = append(r.Notices, fmt.Sprintf("%d of %d predictions failed and count nowhere.", failed, len(joined.Predictions)))
	}
	for _, s := range stored {
		r.Runs = append(r.Runs, describeRun(s))
		if n, _ := countSamples(s.Predictions); !s.Finished {
			r.Notices = append(r.Notices, fmt.Sprintf("The run %s is not finished: %d samples so far. It goes on with %s.", s.Path, n, commands.GoOn.With("config", s.Path+"/"+runs.ConfigFile, "run", s.Path)))
		}
		if s.Damage != "" {
			r.Notices = append(r.Notices, fmt.Sprintf("The run %s is damaged, and read up to there: %s.", s.Path, s.Damage))
		}
	}
	r.Notices = append(r.Notices, devicesDiffer(stored)...)
	r.Tasks = tasksTable(rows)
	r.Policies = policiesTable(stored, policies)
}

// devicesDiffer are notices of models whose numbers come from several devices or kinds of arithmetic.
func devicesDiffer(stored []*runs.Stored) (notices []string) {
	devices := make(map[string][]string) // of models
	for _, s := range stored {
		if s.Environment == nil {
			continue
		}
		for _, m := range s.Environment.Models {
			devices[m.Name] = listing.Union(devices[m.Name], strings.Split(m.Device, ", ")...)
		}
	}
	for _, model := range slices.Sorted(maps.Keys(devices)) {
		if on := devices[model]; len(on) > 1 {
			notices = append(notices, fmt.Sprintf("Model %s was measured on %s: where two tokens are nearly as likely, rounding decides, and answers may differ for that alone.", model, strings.Join(on, " and on ")))
		}
	}
	return notices
}

// countSamples counts samples, and predictions that failed.
func countSamples(all []*evaluation.Prediction) (samples, failed int) {
	for _, p := range all {
		if p.Error != "" {
			failed++
		}
	}
	return len(listing.Group(all, (*evaluation.Prediction).Key)), failed
}

func describeRun(s *runs.Stored) Run {
	samples, failed := countSamples(s.Predictions)
	r := Run{Path: s.Path, State: "finished", Config: string(s.Config),
		Command: commands.Again.With("config", s.Path+"/"+runs.ConfigFile)}
	if !s.Finished {
		r.State = "not finished"
	}
	r.Facts = append(r.Facts, Fact{"state", r.State}, Fact{"samples", fmt.Sprint(samples)}, Fact{"predictions", fmt.Sprintf("%d, %d failed", len(s.Predictions), failed)})
	if e := s.Environment; e != nil {
		r.Facts = append(r.Facts, Fact{"glimpse", e.Glimpse}, Fact{"go", e.Go}, Fact{"system", e.System})
		for _, m := range e.Models {
			r.Facts = append(r.Facts, Fact{"model " + m.Name, fmt.Sprintf("on %s, SHA-256 of the weights %s", m.Device, m.SHA256)})
		}
		for _, note := range e.Accepted {
			r.Facts = append(r.Facts, Fact{"accepted", note})
		}
	}
	return r
}

// tasksTable says what was asked.
func tasksTable(rows []evaluation.Row) *Table {
	t := &Table{Heads: []Head{{Text: "task", Left: true}, {Text: "what", Left: true}, {Text: "metric", Left: true}, {Text: "samples"}, {Text: "scored"}, {Text: "failed"},
		{Text: "prompt", Unit: "tokens, mean"}, {Text: "source", Left: true}}}
	for _, rows := range listing.Group(evaluation.Overall(rows), func(r evaluation.Row) string { return r.Task }) {
		last := rows[len(rows)-1]
		doc, source := absent, absent
		if info, ok := taskInfo(last.Task); ok {
			doc, source = cmp.Or(info.Doc, absent), cmp.Or(info.Source, absent)
		}
		_, failed := rangeOf(rows, func(r evaluation.Row) int { return r.Failed })
		t.Lines = append(t.Lines, Line{Cells: []Cell{{Text: last.Task}, {Text: doc}, {Text: metricOf(rows[:1])}, {Text: span(rangeOf(rows, samples))}, {Text: span(rangeOf(rows, evaluation.Row.Scored))},
			{Text: fmt.Sprint(failed)}, {Text: fmt.Sprint(last.Tokens)}, {Text: source}}})
	}
	return t
}

// policiesTable says what the policies do and how they were set.
func policiesTable(stored []*runs.Stored, policies []string) *Table {
	t := &Table{Heads: []Head{{Text: "policy", Left: true}, {Text: "evicts", Left: true}, {Text: "what it keeps", Left: true}, {Text: "settings", Left: true}, {Text: "source", Left: true}}}
	settings := make(map[string][]string)
	for _, s := range stored {
		if s.Environment == nil {
			continue
		}
		for _, m := range s.Environment.Models {
			for _, p := range m.Policies {
				set := listing.Map(slices.Sorted(maps.Keys(p.Settings)), func(name string) string {
					return name + "=" + settingText(p.Policy, name, p.Settings[name])
				})
				label, text := labelOf(p.Policy, p.Adapter), strings.Join(set, " ")
				settings[label] = listing.Union(settings[label], text)
			}
		}
	}
	for _, label := range slices.Sorted(slices.Values(policies)) {
		kind, doc, source := absent, absent, absent
		name, _, _ := strings.Cut(label, "(")
		name, _, _ = strings.Cut(name, "/")
		if p, err := eviction.LookupPolicy(name); err == nil {
			kind, doc, source = p.Kind, p.Doc, p.Source
		}
		t.Lines = append(t.Lines, Line{Cells: []Cell{{Text: label}, {Text: kind}, {Text: doc}, {Text: cmp.Or(strings.Join(settings[label], "; or "), absent)}, {Text: source}}})
	}
	return t
}

// settingText writes the value of an option as the flag takes it.
func settingText(policy, option string, v float64) string {
	name, _, _ := strings.Cut(policy, "(")
	if p, err := eviction.LookupPolicy(name); err == nil {
		for _, o := range p.Options {
			if o.Name == option {
				return o.FormatValue(v)
			}
		}
	}
	return fmt.Sprintf("%g", v)
}

// budgets are all sections' budgets, rising.
func (r *Report) budgets() []eviction.Budget {
	var out []eviction.Budget
	for _, s := range r.Sections {
		out = listing.Union(out, s.budgets...)
	}
	slices.SortFunc(out, eviction.Budget.Compare)
	return out
}

// summarize compares all sections in one table for each budget at which there is more than
// bounds.
func (r *Report) summarize() {
	for _, b := range r.budgets() {
		labels := slices.DeleteFunc(r.labels(), func(label string) bool {
			return !slices.ContainsFunc(r.Sections, func(s *Section) bool { _, ok := s.wholeMean(label, b); return ok })
		})
		if !slices.ContainsFunc(labels, func(l string) bool { return !IsReference(l) }) {
			continue
		}
		t := r.Sections[0].policyTable(labels)
		for _, s := range r.Sections {
			t.addColumn(Head{Text: s.Title, Unit: s.unit().Sign(), Note: s.metric()}, higher, func(label string) (c Cell, v float64, ok bool) {
				m, ok := s.wholeMean(label, b)
				if ok {
					c, v = scoreCell(m)
				}
				return c, v, ok
			})
		}
		r.Summary = append(r.Summary, Tab{Name: budgetName(b), Table: t.Table})
	}
}
