package main

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// wipeClock is the clock of the queue that wipes ResourceSlices. It moves only with advance.
type wipeClock struct {
	clock.RealClock
	mutex  sync.Mutex
	now    time.Duration
	timers []*timer
}

type timer struct {
	clock.Timer // not used
	of          *wipeClock
	at          time.Duration
	run         func()
}

func (c *wipeClock) AfterFunc(delay time.Duration, run func()) clock.Timer {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	started := &timer{of: c, at: c.now + delay, run: run}
	c.timers = append(c.timers, started)
	return started
}

func (t *timer) Stop() bool {
	t.of.mutex.Lock()
	defer t.of.mutex.Unlock()
	wasActive := t.run != nil
	t.run = nil
	return wasActive
}

// advance runs what is due, and returns how many functions that were.
func (c *wipeClock) advance(amount time.Duration) int {
	c.mutex.Lock()
	c.now += amount
	due := []func(){}
	later := []*timer{}
	for _, each := range c.timers {
		switch {
		case each.run == nil:
		case each.at > c.now:
			later = append(later, each)
		default:
			due = append(due, each.run)
			each.run = nil
		}
	}
	c.timers = later
	c.mutex.Unlock()
	for _, run := range due {
		run()
	}
	return len(due)
}
