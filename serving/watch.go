package serving

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/confidence"
	"glimpse/model/runner"
)

// Watchable tells that a loss can be measured on live traffic, where there are no reference answers.
func Watchable(l eviction.Loss) bool { return l.Name != eviction.LossAccuracy }

// What is done when a promise is broken.
const (
	BreachLog  = "log"  // it is told
	BreachFull = "full" // and requests of the server's own budget keep everything from then on
)

// Breaches are the choices of Config.OnBreach.
func Breaches() []string { return []string{BreachLog, BreachFull} }

// watch tests the server's promise on the requests that are verified, of those that ask for no budget of their own. It is a confidence
// sequence: one may look at any time (package confidence). What it loses on one request is the loss that was calibrated.
type watch struct {
	eviction.Promise
	full    bool // a breach has new requests keep everything
	metrics *metrics
	log     *slog.Logger

	mu       sync.Mutex
	sequence *confidence.Sequence // in units of the loss's scale
}

// newWatch returns nil where nothing is promised, or it cannot be watched.
func newWatch(c *Config, m *metrics) *watch {
	if c.Promise == nil || !Watchable(c.Promise.Loss) || c.VerifyShare == 0 {
		return nil
	}
	p := *c.Promise
	w := &watch{
		Promise: p, full: c.OnBreach == BreachFull, metrics: m, log: c.Log,
		sequence: confidence.NewSequence(p.Epsilon/p.Loss.Scale(), p.Loss.Floor(), 1-p.Confidence),
	}
	w.tellMetrics()
	return w
}

// observe takes what a request has lost, as [eviction.Loss] has it.
func (w *watch) observe(loss float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.sequence.Refuted()
	w.sequence.Add(loss)
	w.tellMetrics()
	if before || !w.sequence.Refuted() {
		return
	}
	what := "calibrate anew on prompts as they are now (evict calibrate); --on-breach full keeps everything meanwhile"
	if w.full {
		what = "requests without a budget of their own keep everything from now on; calibrate anew on prompts as they are now (evict calibrate), and start again"
	}
	w.log.Error("the promise of the calibrated budget is broken: requests lose more than was certified", "loss", w.Loss.Name, "unit", w.Loss.Unit(),
		"mean", w.mean(), "at_least", w.lower(), "promised", w.Epsilon, "confidence", w.Confidence, "requests", w.sequence.Count(), "do", what)
}

func (w *watch) mean() float64  { return w.sequence.Mean() * w.Loss.Scale() }
func (w *watch) lower() float64 { return w.sequence.Lower() * w.Loss.Scale() }

func (w *watch) tellMetrics() {
	broken := 0.0
	if w.sequence.Refuted() {
		broken = 1
	}
	w.metrics.calibrationLoss.WithLabelValues(w.Loss.Name).Set(w.mean())
	w.metrics.calibrationBound.WithLabelValues(w.Loss.Name).Set(w.lower())
	w.metrics.calibrationBroken.WithLabelValues(w.Loss.Name).Set(broken)
	w.metrics.calibrationSeen.WithLabelValues(w.Loss.Name).Set(float64(w.sequence.Count()))
}

// broken tells that the promise was refuted. It stays so.
func (w *watch) broken() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sequence.Refuted()
}

// keepsAll tells that requests of the server's own budget keep everything.
func (w *watch) keepsAll() bool { return w != nil && w.full && w.broken() }

// watchState is what /health says of the promise.
type watchState struct {
	State    string  `json:"state"` // kept or broken
	Loss     string  `json:"loss"`
	Mean     float64 `json:"mean"`
	AtLeast  float64 `json:"at_least"` // of the expected one, with the confidence
	Promised float64 `json:"promised"`
	Requests int     `json:"requests"`
}

// health is the state, and a warning where the promise is broken.
func (w *watch) health() (state *watchState, warning string) {
	if w == nil {
		return nil, ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	state = &watchState{"kept", w.Loss.Name, w.mean(), w.lower(), w.Epsilon, w.sequence.Count()}
	if w.sequence.Refuted() {
		state.State = "broken"
		warning = fmt.Sprintf("the promise of the calibrated budget is broken: the loss (%s) is at least %.4g, and at most %.4g was promised, with %.4g%% confidence", w.Loss.Name, state.AtLeast, w.Epsilon, 100*w.Confidence)
	}
	return state, warning
}

// watchedNew is the most tokens of the full cache's answer that the loss is measured on: as many as evict calibrate lets it say.
const watchedNew = 256

// options are the settings by which the full cache answers once more.
func (a *answered) options(rt *eviction.Runtime) runner.GenerateOptions {
	opt := runner.GenerateOptions{Sampling: a.generate.Sampling, Stop: a.generate.Stop, IgnoreEnd: a.generate.IgnoreEnd, MaxNew: min(watchedNew, max(1, a.generate.MaxNew))}
	if a.constraint != nil {
		opt.Sampling.Processors.Constraint = a.constraint()
	}
	opt.OnToken = engine.StopAt(rt.Runner.Model, a.stop, false)
	return opt
}

// studyWhole lets the full cache give its own whole answer, with what the answer's policy keeps.
func (a *answered) studyWhole(ctx context.Context, rt *eviction.Runtime) (*eviction.Study, error) {
	whole, err := eviction.New("full", 0, nil, nil)
	if err != nil {
		return nil, err
	}
	prompt := eviction.Prompt{Tokens: a.prompt, MaxNew: a.generate.MaxNew, Keep: a.keep}
	return rt.Study(ctx, []*eviction.Configured{a.policy.Configured, whole}, prompt, []int{a.pairs}, a.options(rt))
}

// nll is the mean negative log-likelihood of the full cache's answer under a choice of a study, in nats per token.
func nll(ctx context.Context, s *eviction.Study, c *eviction.Choice) (float64, error) {
	session, err := s.Session(c)
	if err != nil {
		return 0, err
	}
	logProbs, err := session.Force(ctx, s.Response)
	sum := 0.0
	for _, x := range logProbs {
		sum -= x
	}
	return sum / float64(max(1, len(logProbs))), err
}

// count makes the allocations of measuring a loss.
func (w *watch) count(ctx context.Context, rt *eviction.Runtime, a *answered) error {
	s, err := a.studyWhole(ctx, rt)
	if err != nil || w.Loss.Name != eviction.LossNLL {
		return err
	}
	for _, c := range s.Choices {
		if _, err := nll(ctx, s, c); err != nil {
			return err
		}
	}
	return nil
}

// measure is what an answer has lost, and the full cache's own answer.
func (w *watch) measure(ctx context.Context, rt *eviction.Runtime, a *answered) (loss float64, response []int32, err error) {
	s, err := a.studyWhole(ctx, rt)
	if err != nil {
		return 0, nil, err
	}
	if w.Loss.Name == eviction.LossAgreement {
		got := a.response[:min(len(a.response), watchedNew)]
		return w.Loss.OfAgreement(eviction.TokenF1(got, s.Response)), s.Response, nil
	}
	if len(s.Response) == 0 {
		return 0, s.Response, nil
	}
	evicted, err := nll(ctx, s, s.Choices[0])
	if err != nil {
		return 0, nil, err
	}
	whole, err := nll(ctx, s, s.Choices[1])
	return w.Loss.OfNLL(evicted, whole), s.Response, err
}
