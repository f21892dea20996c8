(function () {
  'use strict';
  var box = document.getElementById('workspace');
  if (!box || !window.EventSource) return;
  var name = box.dataset.name, back = box.dataset.back, shown = box.dataset.shown;
  var events = new EventSource('/api/v1/workspaces/' + name + '/events');
  function put(id, text) {
    var element = document.getElementById(id);
    element.textContent = text || '';
    element.hidden = !text;
  }
  function list(blockers) {
    var left = document.getElementById('left');
    left.textContent = '';
    blockers.forEach(function (blocker) {
      var row = document.createElement('li');
      row.textContent = [blocker.object, blocker.finalizers.join(', '), blocker.message].filter(Boolean).join(': ');
      left.appendChild(row);
    });
  }
  function steps(start) {
    var list = document.getElementById('start');
    list.textContent = '';
    start.forEach(function (step) {
      var row = document.createElement('li');
      row.className = step.status;
      row.textContent = step.text;
      if (step.status === 'now') row.setAttribute('aria-current', 'step');
      list.appendChild(row);
    });
  }
  function goBack() {
    events.close();
    location.replace(back);
  }
  // The app may answer before the cluster has counted everything as running: this page's own address then leads there.
  var asking = false;
  function ask() {
    if (asking) return;
    asking = true;
    fetch(location.href, { redirect: 'manual' }).then(function (answer) {
      if (answer.type === 'opaqueredirect') goBack();
    }).catch(function () {}).then(function () {
      setTimeout(function () {
        asking = false;
        if (awaited) ask();
      }, 300);
    });
  }
  var awaited = false;
  events.addEventListener('state', function (event) {
    var state = JSON.parse(event.data);
    awaited = Boolean(back) && state.desired === 'Running' && state.connected;
    if (awaited && state.actual === 'Running') {
      goBack();
      return;
    }
    if (awaited) ask();
    var now = [state.desired, state.actual, state.connected].join(' ');
    if (now !== shown && ['Running', 'Stopped', 'Failed', 'Error', 'Terminated'].indexOf(state.actual) >= 0) {
      events.close();
      location.reload();
      return;
    }
    put('state', state.actual);
    put('reason', state.reason);
    list(state.blockers);
    steps(state.start);
  });
  // It comes with a page that says when, and has the button that puts it off.
  events.addEventListener('idle', function (event) {
    var near = ['announced', 'near'].indexOf(JSON.parse(event.data).stage) >= 0;
    if (near !== Boolean(document.querySelector('.idle.warn'))) {
      events.close();
      location.reload();
    }
  });
  events.addEventListener('end', function () { events.close(); });
  // Whoever pressed a button is on the way to another page: what is told meanwhile must not load this one again.
  addEventListener('beforeunload', function () { events.close(); });
})();
