package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/engine"
	"glimpse/engine/costmodel"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/bytesize"
	"glimpse/internal/commands"
	"glimpse/internal/listing"
	"glimpse/internal/progress"
	"glimpse/internal/stdin"
	"glimpse/internal/tables"
	"glimpse/model"
	"glimpse/model/chat"
	"glimpse/model/hub"
)

// Describe says what the job would measure and what it needs: data with their prompts, adapters, time and
// memory. It reads no weights and fetches nothing. What is missing or cannot be used is told and is an
// error at the end.
func (j *Job) Describe(ctx context.Context, out, log io.Writer) error {
	complete := *j
	if err := complete.growToFolder(ctx); err != nil {
		return fmt.Errorf("eval: --resume: %w", err)
	}
	complete.Tasks = slices.Clone(complete.Tasks)
	for i, t := range complete.Tasks { // tasks without data are told of below
		if t.Data == "" && complete.Data == "" {
			complete.Tasks[i].Data = absentData
		}
	}
	plans, err := complete.checkedPlans()
	if err != nil {
		return fmt.Errorf("eval: %w", err)
	}
	d := &description{job: &complete, w: tables.New(tables.Column{}, tables.Column{Wrap: true}), log: log}
	d.w.Add("policies", strings.Join(complete.Policies, ","))
	d.w.Add("budgets", strings.Join(listing.Map(complete.Budgets, eviction.Budget.String), ", "))
	for _, s := range complete.Models {
		if err := d.subject(ctx, s, plans); err != nil {
			return fmt.Errorf("eval: %w", err)
		}
	}
	if err := d.w.Write(out, tables.Columns(out)); err != nil {
		return err
	}
	if d.missing > 0 {
		return fmt.Errorf("eval: dry run: %s missing, or cannot be used, see above", listing.Count(d.missing, "thing"))
	}
	return nil
}

// description is what Describe says.
type description struct {
	job     *Job
	w       *tables.Table
	log     io.Writer
	missing int
}

func (d *description) lacks(what, why string) {
	d.w.Add(what, "MISSING "+why)
	d.missing++
}

// subject tells of one model with its prompts.
func (d *description) subject(ctx context.Context, s Subject, plans []plan) error {
	m, known, err := d.model(s)
	if err != nil {
		return err
	}
	for _, what := range s.absent() {
		d.lacks("  needs", what)
	}
	names, err := d.policies(s, m, known)
	if err != nil {
		return err
	}
	all, err := d.tasks(ctx, m, known, plans)
	if err != nil {
		return err
	}
	if known && all.longest > 0 {
		return d.needs(ctx, m, names, s, all)
	}
	return nil
}

// model opens a model's shapes and tells of it. Where they are not known, the built-in one stands for it where data are looked for.
func (d *description) model(s Subject) (m *model.Model, known bool, err error) {
	m, lack, err := hub.OpenCached(s.Model, d.job.Device)
	if err != nil {
		return nil, false, err
	}
	if m == nil {
		d.w.Add("model "+s.Model, fmt.Sprintf("is not on this machine: a run fetches %s; prompts, time and memory are not known before", lack))
		m, _, err = hub.OpenCached("", "cpu")
		return m, false, err
	}
	if err := m.SetCacheDType(d.job.CacheDType); err != nil {
		return nil, false, err
	}
	source, err := chat.ReadSource(d.job.ChatTemplate)
	if err != nil {
		return nil, false, fmt.Errorf("--chat-template: %w", err)
	}
	m.UseTemplate(source)
	d.w.Add("model "+m.Name, fmt.Sprintf("%s of weights, prompts of up to %d tokens with their answers", bytesize.FormatMemory(m.WeightBytes()), m.Config.MaxPositions))
	if lack != "" {
		d.w.Add("  to fetch", lack)
	}
	return m, true, nil
}

// policies are the names of the policies; what they lack is told.
func (d *description) policies(s Subject, m *model.Model, known bool) (names []string, err error) {
	if names, err = engine.PolicyNames(strings.Join(d.job.Policies, ",")); err != nil {
		return nil, err
	}
	overrides, err := eviction.ParseOverrides(d.job.Set)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		needs, err := eviction.NeedsOf(name, overrides)
		switch {
		case err != nil:
			return nil, err
		case needs.Pattern && s.Pattern == "" && s.Model != "":
			d.w.Add("  policy "+name, fmt.Sprintf("needs a pattern: \"%s\" finds one, and --pattern takes it, or the model's folder has it", commands.Patterns.With("model", s.Model)))
		}
	}
	o := d.job.options(s)
	lacking, err := o.Lacking(nil)
	if known && err == nil {
		lacking, err = o.Lacking(m)
	}
	for _, l := range lacking {
		d.lacks("  policy "+l.Policy, "an adapter: train one and give it with --adapter")
	}
	return names, err
}

// tasks tells of all tasks, and how long their prompts are.
func (d *description) tasks(ctx context.Context, m *model.Model, known bool, plans []plan) (all lengths, err error) {
	var without []string // subtasks that have no data and were not asked for by name
	var bar *progress.Bar
	// What reads data has a bar of its own.
	if known && !slices.ContainsFunc(plans, func(p plan) bool { return p.setting.Data != "" && p.setting.Data != absentData }) {
		fmt.Fprintf(d.log, "making prompts of %s\n", listing.Count(len(plans), "task"))
		bar = progress.New(d.log, "tasks looked at", int64(len(plans)), progress.After(2*time.Second))
		defer bar.Done()
	}
	for _, p := range plans {
		if bar != nil {
			bar.SetText(p.name)
			bar.Add(0)
		}
		found, err := d.plan(ctx, m, known, p)
		if bar != nil {
			bar.Add(1)
		}
		switch {
		case errors.Is(err, evaluation.ErrNoData) && !p.selection.Named:
			without = append(without, p.name)
		case ctx.Err() != nil:
			return all, context.Cause(ctx)
		case err != nil:
			d.lacks("task "+p.name, err.Error())
		default:
			all.addLengths(found)
		}
	}
	if len(without) > 0 {
		d.w.Add("left out", listing.Count(len(without), "task")+" without data: "+strings.Join(without, ", "))
	}
	return all, nil
}

// lengths are the lengths of the prompts of a task, or of several.
type lengths struct {
	count, looked    int // that are measured; whose lengths are known
	tokens, shortest int // of those that are known, of all together and of one
	longest, maxNew  int
	bad              []error
	long             int // of the bad ones, those with too many tokens
}

func (p *lengths) addLengths(o lengths) {
	p.shortest = min(p.shortest, o.shortest)
	if p.looked == 0 {
		p.shortest = o.shortest
	}
	p.longest, p.maxNew = max(p.longest, o.longest), max(p.maxNew, o.maxNew)
	if p.tokens += o.tokens; o.looked > 0 && o.looked < o.count { // a few stand for all
		p.tokens += o.tokens / o.looked * (o.count - o.looked)
	}
	p.count, p.looked = p.count+o.count, p.looked+o.looked
}

// looks is how many prompts of a task that makes them are made, since they are alike; shown is of how many the
// errors are.
const (
	looks = 2
	shown = 3
)

// plan tells of one task. Of data all prompts are looked at.
func (d *description) plan(ctx context.Context, m *model.Model, known bool, p plan) (found lengths, err error) {
	set, task := p.setting, p.selection.Task
	switch {
	case set.Data == absentData && task.NeedsData:
		return found, fmt.Errorf("data: %s", task.Data)
	case set.Data == absentData:
		set.Data = ""
	case set.Data == stdin.Name || objectstore.IsURL(set.Data):
		d.w.Add("task "+p.name, "data "+set.Data+", which is not looked at before the run")
		return found, nil
	case set.Data != "":
		if _, err := os.Stat(set.Data); err != nil {
			return found, fmt.Errorf("data %s: %s", set.Data, task.Data)
		}
	}
	set.Model = m
	samples, err := p.selection.Open(ctx, &set)
	if errors.Is(err, evaluation.ErrNoData) || known && err != nil {
		return found, err
	}
	from := "made"
	if set.Data != "" {
		from = "of " + set.Data
	}
	if !known {
		text := "prompts " + from
		if err == nil && samples.Count > 0 {
			text = listing.Count(samples.Count, "prompt") + " " + from
		}
		d.w.Add("task "+p.name, text)
		return found, nil
	}
	if some := set.Data == "" && samples.Count > 0; some {
		found.count = samples.Count
		err = found.lookAtSome(ctx, samples)
	} else {
		err = found.lookAtAll(ctx, samples, d.log)
	}
	if err != nil {
		return found, err
	}
	long := fmt.Sprintf("%d to %d tokens", found.shortest, found.longest)
	if found.shortest == found.longest {
		long = fmt.Sprintf("%d tokens", found.longest)
	}
	d.w.Add("task "+p.name, fmt.Sprintf("%s of %s, %s, scored by %s", listing.Count(found.count, "prompt"), long, from, samples.Metric))
	if len(found.bad) > 0 {
		d.w.Add("  UNUSABLE", found.unusable())
		d.missing++
	}
	return found, nil
}

// lookAtSome makes a few of the samples.
func (p *lengths) lookAtSome(ctx context.Context, samples *evaluation.Samples) error {
	for item := range samples.Each {
		if p.looked+len(p.bad) == looks {
			break
		}
		if p.addItem(ctx, item); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// lookAtAll reads all samples, and counts them.
func (p *lengths) lookAtAll(ctx context.Context, samples *evaluation.Samples, log io.Writer) error {
	bar := progress.New(log, "prompts looked at", int64(samples.Count))
	defer bar.Done()
	for item := range samples.Each {
		if p.addItem(ctx, item); ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.count++
		bar.Add(1)
	}
	return nil
}

// unusable says what is wrong with samples.
func (p *lengths) unusable() string {
	n := len(p.bad)
	text := fmt.Sprintf("%d of %s", n, listing.Count(min(p.count, n+p.looked), "prompt"))
	if p.long > 0 {
		text += fmt.Sprintf(", %d too long for the model with the answer", p.long)
	}
	for i, err := range p.bad[:min(n, shown)] {
		text += []string{": ", "; "}[min(i, 1)] + err.Error()
	}
	if n > shown {
		text += fmt.Sprintf("; and %d more", n-shown)
	}
	return text
}

// addItem makes a sample and takes down how long its prompt is.
func (p *lengths) addItem(ctx context.Context, item evaluation.Item) {
	s, err := item.Make(ctx)
	tokens := 0
	if err == nil {
		if tokens = s.Tokens; len(s.Turns) > 0 {
			var ids []int32
			ids, _, err = s.Turns[0].Prompt(ctx, nil)
			tokens = len(ids)
			for _, turn := range s.Turns {
				p.maxNew = max(p.maxNew, turn.MaxNew)
			}
		}
	}
	if err != nil {
		if errors.Is(err, evaluation.ErrLong) {
			p.long++
		}
		if !strings.Contains(err.Error(), item.ID) { // as errors of rows do
			err = fmt.Errorf("%s: %w", item.ID, err)
		}
		p.bad = append(p.bad, err)
		return
	}
	if p.looked++; p.looked == 1 {
		p.shortest = tokens
	}
	p.shortest, p.longest, p.tokens = min(p.shortest, tokens), max(p.longest, tokens), p.tokens+tokens
}

// needs tells what a run takes: its memory, and its time from the times of the model's products and steps on its device.
func (d *description) needs(ctx context.Context, m *model.Model, names []string, s Subject, all lengths) error {
	fmt.Fprintf(d.log, "timing what the model computes, and counting its memory at %d tokens\n", all.longest)
	costs := costmodel.New(m, costmodel.ChipOf(m), costmodel.Runtime)
	mean := max(1, all.tokens/max(1, all.count))
	whole, err := eviction.New("full", 0, nil, nil)
	if err != nil {
		return err
	}
	maxNew := max(1, all.maxNew)
	e := costs.Estimate(whole, costmodel.Run{Tokens: mean, Budget: mean, MaxNew: maxNew})
	cells := 1 // the full cache's answer, whatever is measured
	for _, name := range names {
		if name == "full" {
			cells++
		} else {
			cells += len(d.job.Budgets)
		}
	}
	seconds := func(s float64) time.Duration { return progress.Rounded(time.Duration(s * float64(time.Second))) }
	prefill := e.Plain.Seconds * float64(all.count)
	decode := e.Step.Seconds * float64(maxNew*cells*all.count)
	d.w.Add("time", fmt.Sprintf("about %v for %s at %.3g tokens/s, and at most about %v for %d answers to each of %d tokens at %.3g tokens/s; answers that end before or are decoded together take less; what policies compute, and --times, are not in it",
		seconds(prefill), listing.Count(all.count, "prompt"), float64(mean)/e.Plain.Seconds, seconds(decode), cells, maxNew, 1/e.Step.Seconds))
	o, run := d.job.options(s), d.job.footprint(all.longest, maxNew)
	f, err := o.Memory(ctx, m, run)
	if err != nil {
		return err
	}
	d.w.Add("memory", fmt.Sprintf("%s at the longest prompt beside %s of weights", bytesize.FormatMemory(f.Need), bytesize.FormatMemory(m.WeightBytes())))
	if err := o.CheckMemory(ctx, m, run); err != nil {
		d.lacks("  memory", err.Error())
	}
	return nil
}

// absent are the folders of adapters and of a pattern that are not there.
func (s Subject) absent() (out []string) {
	look := func(what, spec string) {
		path := spec
		if _, dir, ok := strings.Cut(spec, "="); ok {
			path = dir
		}
		if _, err := os.Stat(path); err != nil && path != "" && path != engine.Shipped && !objectstore.IsURL(path) {
			out = append(out, what+" "+path)
		}
	}
	for _, a := range s.Adapters {
		look("adapter", a)
	}
	look("pattern of retrieval heads", s.Pattern)
	if !slices.Contains(eviction.HeadSharings(), s.Heads) {
		look("budgets of heads", s.Heads)
	}
	return out
}

// absentData stands for data that was not given.
const absentData = "(none)"
