/*
Package engine opens a model with its adapters, drafts and policies, and answers requests with its cache evicted. Whoever decodes an
answer decodes it here.

# The contract

An [Engine] is a state machine. It has no clock, no goroutine and no input or output of its own: it is stepped, and says what has
happened, as the RawNode of etcd's raft does. It belongs to one goroutine, as the sessions of its requests do until they are done.

Its caller

  - submits a [Request] at any time between two steps: a session, the prompt that it goes on with, and how it is answered. Nothing of
    it runs before the next step. [Engine.Submit] gives an [Answer], which is the request from then on: its tokens and text so far,
    why it has ended, and its error.
  - steps as long as there are requests ([Engine.Len]), and reads the events of each step.
  - cancels an answer at any time between two steps. One in the middle of its tokens ends as if all had been said.

The engine promises

  - bits: what a request answers depends on its session, prompt and settings alone. It does not depend on what else there is, on the
    order of units and steps, on what was cancelled, on the budget, or on prompts whose beginnings were shared.
  - order: requests begin in the order in which they were submitted, each as soon as there is a row and room in the budget for it.
    Events of a step come in the order in which their answers began. Of every request the last event is Done, and it is the only
    one that is, but of those that are cancelled, whose Done is the call's.
  - progress: a step runs at least one unit of a prompt, where one waits that there is room for, and then decodes a token of every answer
    that has begun, two in the first step of an answer. A unit is one chunk of a prompt in one layer, a token of a draft, or an
    eviction of one layer. [Engine.More] says how many units run between two tokens.
  - faults: an error of a request, or a panic of its policy, its processors or its callbacks, ends that answer and no other. An error of
    the device, or a panic of the pass that all answers share, is the step's, and every answer that has begun ends with it. The engine
    may go on in either case. A context that has ended stops the step and nothing else.
  - memory: with a budget no more is held at once. A request that can never fit is refused when it is submitted (model.ErrMemory).

This is the whole loop, and [Engine] has an example of it that runs:

	e, err := engine.New(eviction.NewRuntime(m), rows)
	…
	for {
		for e.Len() < rows && more {
			a, err := e.Submit(engine.Request{Session: s, Prompt: ids, Generate: settings})
			…
		}
		if e.Len() == 0 {
			return nil
		}
		events, err := e.Step(ctx)
		if err != nil {
			return err // of all: after Close another engine may take the runtime
		}
		for _, event := range events {
			write(event.Answer, event.Text)
			if event.Done {
				finish(event.Answer, event.Answer.Err())
			}
		}
	}

The files of testdata show what comes of submits, steps, cancels, conversations that go on and sessions that are kept, command by
command.

# Objects

[Open] gives a [Model], which makes a [Policy] of a name with the adapter or draft that it takes. A policy at a budget begins an
eviction.Session: a conversation with its cache, whose hooks say what is observed of a prompt, what is selected, and what a step keeps
and reads. An [Answer] is a request of a session as it is answered; below it there is the runner's sequence alone, a row of the batch.
A client that tells answers in its own words wraps the Answer once.
*/
package engine
