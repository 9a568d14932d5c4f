package inspection

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"glimpse/eviction"
	"glimpse/internal/stats"
	"glimpse/internal/tables"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// QueriesSchema names the JSON of a QueryReport.
const QueriesSchema = "glimpse.queries/1"

// QueryOptions say which pseudo-queries are compared.
type QueryOptions struct {
	Rows   int // pseudo-queries, and so many first tokens of the response
	Trials int // of random choices
	// Starts are the positions that the response's own tokens are moved to; nil are nine
	// from the first one to their own.
	Starts []int
	Seed   uint64
}

// QueryReport tells how similar pseudo-queries are to the queries of the response that the
// model gives, greedily and with the full cache (DapQ, arXiv:2603.11564, §3.1, §3.2).
// Similarity is the cosine of the queries of one row, layer and query head, as a mean over
// them; all rows see the whole prompt, wherever they stand.
type QueryReport struct {
	Schema     string            `json:"schema"`
	Model      string            `json:"model"`
	Tokens     int               `json:"tokens"`   // of the prompt
	Response   []int32           `json:"response"` // its first tokens
	Conditions []QueryCondition  `json:"conditions"`
	Offsets    []QuerySimilarity `json:"offsets"` // of the response's own tokens elsewhere
}

// QueryCondition is what pseudo-queries say and where they stand.
type QueryCondition struct {
	Content  string `json:"content"`  // "same" as the response, or as the option content of dapq
	Position string `json:"position"` // "same" as the response, "first" of all, a "random" one in the prompt, or an "early" one
	QuerySimilarity
}

// QuerySimilarity is that of the queries as they attend, and before RoPE turns them.
type QuerySimilarity struct {
	Start  int         `json:"start"` // position of the first row; of several trials that of the first one
	Offset int         `json:"offset"`
	After  TrialMean   `json:"after_rope"`
	Before TrialMean   `json:"before_rope"`
	Layers []LayerMean `json:"layers"` // that attend; means over trials
}

// LayerMean is the mean over the rows and heads of a layer.
type LayerMean struct {
	After  float64 `json:"after_rope"`
	Before float64 `json:"before_rope"`
}

// TrialMean sums up trials; each is a mean over rows, layers and heads.
type TrialMean struct {
	Mean      float64    `json:"mean"`
	Trials    int        `json:"trials"`
	Quartiles [5]float64 `json:"quartiles"` // the least, the quartiles and the largest: a box of figure 2a
}

// earlyPositions is the range of positions that are far from a response's (DapQ,
// arXiv:2603.11564, app. B.1.2).
const earlyPositions = 100

// conditions are as in table 1 and figure 2a, and dapq's contents where it puts them.
var conditions = []struct{ content, position string }{
	{"same", "same"}, {"fixed", "same"}, {"same", "first"}, {"fixed", "first"},
	{"vocabulary", "same"}, {"same", "random"}, {"same", "early"}, {"vocabulary", "random"}, {"vocabulary", "early"},
	{"ends", "same"}, {"random", "same"}, {"span", "same"},
}

// NewQueryReport compares the queries for a prompt.
func NewQueryReport(ctx context.Context, m *model.Model, prompt []int32, o QueryOptions) (_ *QueryReport, err error) {
	defer kernels.CatchDevice(&err)
	if o.Rows < 1 || o.Trials < 1 {
		return nil, fmt.Errorf("queries: %d rows and %d trials, want at least 1 of each", o.Rows, o.Trials)
	}
	c := &queryComparison{ctx: ctx, runner: runner.New(m), cache: kvcache.New(m), prompt: prompt, options: o, rng: rand.New(rand.NewPCG(o.Seed, 14))}
	logits, err := c.runner.Forward(ctx, c.cache, prompt, runner.PrefillOptions{})
	if err != nil {
		return nil, err
	}
	r := &QueryReport{Schema: QueriesSchema, Model: m.Name, Tokens: len(prompt)}
	if r.Response, err = c.runner.Respond(ctx, c.cache, logits, runner.GenerateOptions{MaxNew: o.Rows}); err != nil {
		return nil, err
	}
	c.response = r.Response
	if len(c.response) == 0 {
		return nil, fmt.Errorf("queries: the model's response to the prompt is empty, want at least one token")
	}
	if c.truth, err = c.queries(model.TokenRows(c.response)); err != nil {
		return nil, err
	}
	for _, at := range conditions {
		similarity, err := c.condition(at.content, at.position)
		if err != nil {
			return nil, err
		}
		r.Conditions = append(r.Conditions, QueryCondition{at.content, at.position, similarity})
	}
	starts := o.Starts
	for i := range 9 {
		if o.Starts == nil {
			starts = append(starts, i*len(prompt)/8)
		}
	}
	for _, start := range starts {
		if most := m.Config.MaxPositions - len(c.response); start < 0 || start > most {
			return nil, fmt.Errorf("queries: start %d, want 0 to %d", start, most)
		}
		similarity, err := c.similarity(1, func() (model.TokenRows, int, error) { return c.response, start, nil })
		if err != nil {
			return nil, err
		}
		r.Offsets = append(r.Offsets, similarity)
	}
	return r, nil
}

// queryComparison is a prompt with the queries of its response.
type queryComparison struct {
	ctx      context.Context
	runner   *runner.Runner
	cache    *kvcache.Cache // of the prompt
	prompt   []int32
	response model.TokenRows
	truth    []runner.QueryVectors
	options  QueryOptions
	rng      *rand.Rand
}

// condition draws and compares.
func (c *queryComparison) condition(content, position string) (QuerySimilarity, error) {
	n, trials := len(c.prompt), 1
	if position == "random" || position == "early" || content == "vocabulary" || content == "random" || content == "span" {
		trials = c.options.Trials
	}
	return c.similarity(trials, func() (rows model.TokenRows, start int, err error) {
		last := max(0, n-len(c.response))
		switch start = n; position {
		case "first":
			start = 0
		case "random":
			start = c.rng.IntN(last + 1)
		case "early":
			start = c.rng.IntN(min(last, earlyPositions) + 1)
		}
		rows, err = c.content(content)
		return rows, start, err
	})
}

// content is what so many pseudo-queries as the response has tokens say.
func (c *queryComparison) content(name string) (model.TokenRows, error) {
	if name == "same" {
		return c.response, nil
	}
	set, err := eviction.ParseOverrides([]string{"dapq.content=" + name, fmt.Sprintf("dapq.rows=%d", len(c.response))})
	if err != nil {
		return nil, err
	}
	policy, err := eviction.New("dapq", c.rng.Uint64(), set, nil)
	if err != nil {
		return nil, err
	}
	m := c.runner.Model
	plan := policy.Method.Plan(eviction.Prompt{Tokens: c.prompt, Entries: len(c.prompt), Config: &m.Config, Tokenizer: m.Tokenizer})
	return plan.Capture.Probes[0].(model.TokenRows), nil
}

// similarity compares the rows of trials, which draw gives with their start, with the response's.
func (c *queryComparison) similarity(trials int, draw func() (rows model.TokenRows, start int, err error)) (s QuerySimilarity, err error) {
	var after, before []float64
	s.Layers = make([]LayerMean, len(c.truth))
	for trial := range trials {
		rows, start, err := draw()
		if err != nil {
			return s, err
		}
		if trial == 0 {
			s.Start, s.Offset = start, start-len(c.prompt)
		}
		vectors, err := c.queries(model.ShiftedTokens{TokenRows: rows, By: start - len(c.prompt)})
		if err != nil {
			return s, err
		}
		a, b := 0.0, 0.0
		for l := range vectors {
			x, y := cosines(vectors[l].Rotated, c.truth[l].Rotated), cosines(vectors[l].Unrotated, c.truth[l].Unrotated)
			a, b = a+x/float64(len(vectors)), b+y/float64(len(vectors))
			s.Layers[l].After += x / float64(trials)
			s.Layers[l].Before += y / float64(trials)
		}
		after, before = append(after, a), append(before, b)
	}
	s.After, s.Before = sumUp(after), sumUp(before)
	return s, nil
}

// queries are the queries of rows in the layers that attend.
func (c *queryComparison) queries(rows model.QueryRows) ([]runner.QueryVectors, error) {
	all, err := c.runner.Queries(c.ctx, c.cache, rows)
	return slices.DeleteFunc(all, func(q runner.QueryVectors) bool { return q.Rotated == nil }), err
}

func sumUp(x []float64) TrialMean {
	mean, _ := stats.Mean(x)
	return TrialMean{Mean: mean, Trials: len(x), Quartiles: [5]float64(stats.Quantiles(x, 0, 0.25, 0.5, 0.75, 1))}
}

// cosines is the mean cosine of the vectors of two tensors [rows, heads, headDim], over the
// rows that both have.
func cosines(a, b *kernels.Tensor) float64 {
	dim, n := a.Shape[2], min(a.Dim0(), b.Dim0())*a.Shape[1]
	x, y, sum := a.F64(), b.F64(), 0.0
	for i := range n {
		var xy, xx, yy float64
		for d := i * dim; d < (i+1)*dim; d++ {
			xy, xx, yy = xy+x[d]*y[d], xx+x[d]*x[d], yy+y[d]*y[d]
		}
		if xx > 0 && yy > 0 {
			sum += xy / math.Sqrt(xx*yy)
		}
	}
	return sum / float64(n)
}

// WriteJSON writes one object with a schema.
func (r *QueryReport) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// WriteTable writes both tables for people.
func (r *QueryReport) WriteTable(w io.Writer) error {
	number := func(head string) tables.Column { return tables.Column{Head: head, Right: true} }
	t := tables.New(tables.Column{Head: "CONTENT"}, tables.Column{Head: "POSITION"}, number("START"), number("AFTER ROPE"), number("BEFORE ROPE"), number("TRIALS"))
	for _, c := range r.Conditions {
		start := fmt.Sprint(c.Start)
		if c.Position == "random" || c.Position == "early" {
			start = "drawn"
		}
		t.Add(c.Content, c.Position, start, fmt.Sprintf("%.4f", c.After.Mean), fmt.Sprintf("%.4f", c.Before.Mean), fmt.Sprint(c.After.Trials))
	}
	columns := tables.Columns(w)
	if err := t.Write(w, columns); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nthe response's first %d tokens elsewhere; their own position is %d\n\n", len(r.Response), r.Tokens)
	t = tables.New(number("OFFSET"), number("START"), number("AFTER ROPE"), number("BEFORE ROPE"))
	for _, s := range r.Offsets {
		t.Add(fmt.Sprintf("%+d", s.Offset), fmt.Sprint(s.Start), fmt.Sprintf("%.4f", s.After.Mean), fmt.Sprintf("%.4f", s.Before.Mean))
	}
	return t.Write(w, columns)
}
