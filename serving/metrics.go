package serving

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/kernels"
)

// metrics are what /metrics tells. Names end as vLLM's do.
type metrics struct {
	registry *prometheus.Registry

	running, waiting               prometheus.Gauge
	cacheUsage, prefixBytes        prometheus.Gauge
	prefixQueries, prefixHits      prometheus.Counter
	turns, turnsOn, turnTokens     prometheus.Counter
	letGo                          prometheus.Counter
	sessions, contexts, keptBytes  prometheus.Gauge
	promptTokens, generationTokens prometheus.Counter
	success                        *prometheus.CounterVec // by finished_reason
	rejected, busy, failed, panics prometheus.Counter
	ttft, interToken, perToken     prometheus.Histogram
	e2e, queue                     prometheus.Histogram
	gap, idleUnit                  prometheus.Gauge
	kept, evicted, read            *prometheus.CounterVec // bytes, by policy
	agreement, shadow              *prometheus.HistogramVec
	recorded, idle                 *prometheus.CounterVec
	calibrationLoss                *prometheus.GaugeVec // by loss, as all of the promise; without a promise there is none
	calibrationBound               *prometheus.GaugeVec
	calibrationBroken              *prometheus.GaugeVec
	calibrationSeen                *prometheus.GaugeVec
}

func newMetrics(version string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	auto := promauto.With(m.registry)
	gauge := func(name, help string) prometheus.Gauge {
		return auto.NewGauge(prometheus.GaugeOpts{Namespace: "glimpse", Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Namespace: "glimpse", Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Namespace: "glimpse", Name: name, Help: help}, labels)
	}
	seconds := func(name, help string, buckets []float64) prometheus.Histogram {
		return auto.NewHistogram(prometheus.HistogramOpts{Namespace: "glimpse", Name: name, Help: help, Buckets: buckets})
	}
	long := prometheus.ExponentialBucketsRange(0.01, 600, 20)
	m.running = gauge("num_requests_running", "Answers whose prompt runs or that are decoded.")
	m.waiting = gauge("num_requests_waiting", "Answers that wait for room.")
	m.cacheUsage = gauge("kv_cache_usage_perc", "Share of the memory of keys and values that sessions and shared prefixes hold, 0 to 1.")
	m.prefixBytes = gauge("prefix_cache_bytes", "Memory of the shared prefixes.")
	m.prefixQueries = counter("prefix_cache_queries", "Prompt tokens that were looked for among the shared prefixes.")
	m.prefixHits = counter("prefix_cache_hits", "Prompt tokens that were found there.")
	m.turns = counter("conversation_queries", "Prompts of conversations, under policies that keep turns, that were looked for among the sessions that wait.")
	m.turnsOn = counter("conversation_hits", "Those that went on with the session of the turns before.")
	m.turnTokens = counter("conversation_hit_tokens", "Prompt tokens that did not run for that.")
	m.sessions = gauge("conversation_sessions", "Sessions that wait for another turn.")
	m.contexts = gauge("contexts", "Compressed contexts that are kept for other questions.")
	m.keptBytes = gauge("conversation_bytes", "Memory of the sessions that wait for another turn, and of contexts.")
	m.letGo = counter("conversation_evictions", "Sessions and contexts that were let go of, since others needed their room.")
	m.promptTokens = counter("prompt_tokens_total", "Tokens of prompts whose answers are done.")
	m.generationTokens = counter("generation_tokens_total", "Tokens of answers that are done.")
	m.success = counters("request_success_total", "Answers that are done, by why they ended.", "finished_reason")
	m.busy = counter("request_busy_total", "Requests that were answered with 503, since their bodies found no room in time.")
	m.rejected = counter("request_rejected_total", "Requests that were answered with 429, since too many waited.")
	m.failed = counter("device_errors_total", "Errors of the device, with which all answers ended.")
	m.panics = counter("handler_panics_total", "Requests whose handler or answer panicked, which were answered with 500.")
	m.ttft = seconds("time_to_first_token_seconds", "From the request to its first token.", long)
	short := prometheus.ExponentialBucketsRange(0.001, 10, 25)
	m.interToken = seconds("inter_token_latency_seconds", "Between two tokens of an answer.", short)
	m.perToken = seconds("request_time_per_output_token_seconds", "Mean time between tokens of an answer.", short)
	m.e2e = seconds("e2e_request_latency_seconds", "From the request to the end of its answer.", long)
	m.queue = seconds("request_queue_time_seconds", "From the request to the start of its prompt.", long)
	m.gap = gauge("longest_step_seconds", "The longest step while answers were decoded.")
	m.idleUnit = gauge("longest_idle_unit_seconds", "The longest unit of work that was done while there were no requests, which one that comes waits for.")
	m.kept = counters("kv_kept_bytes_total", "Bytes of keys and values that prompts left.", "policy")
	m.evicted = counters("kv_evicted_bytes_total", "Bytes of keys and values of prompts that were evicted.", "policy")
	m.read = counters("kv_read_bytes_total", "Bytes of keys and values that decoding steps read.", "policy")
	shares := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return auto.NewHistogramVec(prometheus.HistogramOpts{Namespace: "glimpse", Name: name, Help: help, Buckets: []float64{0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1}}, labels)
	}
	m.agreement = shares("verified_agreement", "Share of a greedy answer's tokens, its end among them, before the first difference to what the full cache answers.", "policy", "budget")
	m.shadow = shares("shadow_hit_rate", "Critical-KV hit rate (Judge Q, arXiv:2509.10798, eq. 6) of what is kept of prompts, by the answers given, of the policies that gave them and of the shadow.", "adapter")
	m.recorded = counters("recorded_pairs_total", "Answers that were to be recorded, by what has become of them.", "outcome")
	m.idle = counters("idle_work_total", "Answers to verify, or to compare with the shadow, by what has become of the work.", "work", "outcome")
	promise := func(name, help string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Namespace: "glimpse", Name: name, Help: help}, []string{"loss"})
	}
	m.calibrationLoss = promise("calibration_loss", "Mean loss of the requests on which the promise of a calibrated budget is watched, in the loss's unit.")
	m.calibrationBound = promise("calibration_loss_bound", "What the expected loss is at least, with the confidence of the promise.")
	m.calibrationBroken = promise("calibration_broken", "1 where that is above what was promised, else 0. It stays 1.")
	m.calibrationSeen = promise("calibration_requests", "Requests on which the promise was watched.")
	info := auto.NewGaugeVec(prometheus.GaugeOpts{Namespace: "glimpse", Name: "build_info", Help: "The version that runs."}, []string{"version"})
	info.WithLabelValues(version).Set(1)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// stepped is told after every step.
func (m *metrics) stepped(w *worker) {
	running, held := w.decoding(), int64(0)
	for _, c := range w.choices {
		held += c.session().Bytes()
	}
	m.running.Set(float64(running))
	m.waiting.Set(float64(len(w.choices) - running))
	if p := w.runtime.Prefixes; p != nil {
		m.prefixBytes.Set(float64(p.Bytes()))
		held += p.Bytes()
	}
	kept := w.engine.Kept()
	m.sessions.Set(float64(kept.Sessions))
	m.contexts.Set(float64(kept.Contexts))
	m.keptBytes.Set(float64(kept.Bytes))
	m.letGo.Add(float64(kept.LetGo - w.letGo))
	w.letGo = kept.LetGo
	held += kept.Bytes
	if w.memory > 0 {
		m.cacheUsage.Set(float64(held) / float64(w.memory))
	}
}

// finished is told of every answer that is done, while its choice is locked.
func (m *metrics) finished(c *choice) {
	u, took := &c.said.usage, c.said.finished.Sub(c.entered)
	reason := finishReason(c.said.reason)
	if c.err != nil {
		reason = "abort"
	}
	m.success.WithLabelValues(reason).Inc()
	m.e2e.Observe(took.Seconds())
	if u.Details == nil { // its prompt has not run
		return
	}
	m.promptTokens.Add(float64(u.PromptTokens))
	m.generationTokens.Add(float64(u.CompletionTokens))
	m.prefixQueries.Add(float64(u.PromptTokens))
	m.prefixHits.Add(float64(c.session().Reused))
	if c.goesOn {
		m.turns.Inc()
		if n := c.answer.Standing(); n > 0 {
			m.turnsOn.Inc()
			m.turnTokens.Add(float64(n))
		}
	}
	m.ttft.Observe(c.said.ttft.Seconds())
	m.queue.Observe(max(0, c.said.ttft-c.session().PrefillTime).Seconds())
	if n := u.CompletionTokens; n > 1 {
		m.perToken.Observe((took - c.said.ttft).Seconds() / float64(n-1))
	}
	policy := u.Eviction.Policy
	m.kept.WithLabelValues(policy).Add(float64(c.held))
	m.evicted.WithLabelValues(policy).Add(float64(max(0, c.session().FullBytes-c.held)))
	m.read.WithLabelValues(policy).Add(float64(c.session().Traffic.Steps) * c.session().Traffic.PerStep())
}

// finishReason is OpenAI's word for why an answer ended.
func finishReason(r engine.Reason) string {
	switch r {
	case engine.MaxNew, engine.Context:
		return "length"
	case engine.End, engine.StopText:
		return "stop"
	}
	return "abort"
}

// usage is what an answer took. Counts are the text's; beside them what was kept and read of it.
type usage struct {
	PromptTokens     int            `json:"prompt_tokens"`
	CompletionTokens int            `json:"completion_tokens"`
	TotalTokens      int            `json:"total_tokens"`
	Details          *promptDetails `json:"prompt_tokens_details,omitempty"`
	Eviction         *evictionUsage `json:"eviction,omitempty"`
}

type promptDetails struct {
	CachedTokens int `json:"cached_tokens"` // that did not run, since their pairs were there
}

// evictionUsage is of one answer; of several the first's.
type evictionUsage struct {
	Policy      string  `json:"policy"`
	Budget      int     `json:"budget"`                // pairs per KV head and layer
	StayTokens  int     `json:"stay_tokens,omitempty"` // of the prompt, that every head keeps whatever the policy says
	KeptEntries float64 `json:"kept_entries"`          // per KV head and layer after the prompt, mean
	KeptBytes   int64   `json:"kept_bytes"`
	FullBytes   int64   `json:"full_bytes"`   // of the prompt's cache without eviction
	ReadEntries float64 `json:"read_entries"` // per KV head, layer and step of the answer, mean
	PrefillMS   float64 `json:"prefill_ms"`   // of the prompt's pass, eviction included
	TokensPerS  float64 `json:"tokens_per_s"` // of the answer
	// Tokens are the prompt's, where "eviction" has "kept": each a text as [model.Model.Texts] has it, and the
	// share of KV heads, over all layers, that kept it after the prompt, 0 to 1.
	Tokens [][2]any `json:"tokens,omitempty"`
}

// maxKept bounds the tokens of a prompt whose usage has them.
const maxKept = 8192

// used is the usage of a choice whose answer is done; its prompt has run.
func (c *choice) used() usage {
	s := c.session()
	n := len(c.answer.Tokens())
	if c.held == 0 { // its prompt has not run
		return usage{}
	}
	prompt := len(c.answer.Request.Prompt)
	u := usage{PromptTokens: prompt, CompletionTokens: n, TotalTokens: prompt + n, Details: &promptDetails{c.answer.Standing() + s.Reused}}
	heads := float64(s.Cache.Heads())
	u.Eviction = &evictionUsage{
		Policy: c.policy.NameWithAdapter(), Budget: c.pairsOf(s), StayTokens: s.Keep.Tokens(prompt), KeptEntries: float64(c.pairs) / heads, KeptBytes: c.held, FullBytes: s.FullBytes,
		ReadEntries: s.Traffic.PerStep() / float64(s.Cache.TokenBytes()), PrefillMS: float64(s.PrefillTime) / float64(time.Millisecond),
	}
	if c.texts != nil {
		tokens, err := c.keptTokens()
		u.Eviction.Tokens, c.err = tokens, cmp.Or(c.err, err)
	}
	if took := time.Since(c.first); n > 1 {
		u.Eviction.TokensPerS = float64(n-1) / took.Seconds()
	}
	return u
}

// pairsOf is what the budget comes to: of the context, where the prompt begins with one.
func (c *choice) pairsOf(s *eviction.Session) int {
	if s.Context != nil {
		n := len(s.Context.Tokens)
		pairs, _ := c.budget.Beside(n, s.Keep.Tokens(n))
		return pairs
	}
	return s.Prompt.Budget
}

// keptTokens are evictionUsage.Tokens, which come from the device. What follows a context is kept.
func (c *choice) keptTokens() (tokens [][2]any, err error) {
	defer kernels.CatchDevice(&err)
	s := c.session()
	kept, heads := s.Kept(), s.Cache.Heads()
	if s.Context != nil {
		kept = s.Context.Kept()
	}
	for i, n := range eviction.KeptCounts(kept, len(c.texts)) {
		if s.Context != nil && i >= len(s.Context.Tokens) {
			n = heads
		}
		tokens = append(tokens, [2]any{c.texts[i], float64(n) / float64(heads)})
	}
	return tokens, nil
}

// addUsage sums the usage of several answers to one prompt.
func (u *usage) addUsage(o usage) {
	u.PromptTokens = max(u.PromptTokens, o.PromptTokens)
	u.CompletionTokens += o.CompletionTokens
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	if u.Details == nil {
		u.Details, u.Eviction = o.Details, o.Eviction
	}
}
